package collectives

// Two levels: what is done between hosts is done by one rank of each, its leader, so that each host's link carries the
// elements once. Inside the hosts it is a binomial tree.

func barrierTwoLevel(b *Builder, p *Params) {
	host := p.neighbours()
	b.signalUp(&host, 0)
	if host.rank == 0 {
		t := p.leaders(-1)
		b.disseminate(&t)
	}
	b.signalDown(&host, 0)
}

// atOnce is the longest Bcast that a leader sends to other hosts and to its own in one round. A send of a long message
// waits for its receiver, and in one round neither host's ranks wait for the other's. Of what is longer, the ranks of
// its own host would take a processor from the message to the other host, which the ranks there wait for
// (docs/decisions/choice.md).
const atOnce = 512 * kib

func bcastTwoLevel(b *Builder, p *Params) {
	buf := Ref{Space: Out}
	host := tree{t: p.neighbours(), root: p.leader(p.Root), radix: 2}
	if host.t.rank == host.root {
		between := tree{t: p.leaders(p.Root), root: p.Hosts.Host(p.Root), radix: 2}
		b.fromParent(&between, buf, p.Count)
		b.toChildren(&between, buf, p.Count)
		if p.Count*p.ElemSize > atOnce {
			b.next()
		}
	} else {
		b.fromParent(&host, buf, p.Count)
	}
	b.toChildren(&host, buf, p.Count)
	b.next()
}

func reduceTwoLevel(b *Builder, p *Params) {
	host, leader := p.neighbours(), p.leader(p.Root)
	source := Ref{Space: In}
	if p.InPlace && p.Rank == p.Root {
		source = Ref{Space: Out}
	}
	home := b.hostHome(p, &host, leader)
	source = b.treeUp(&host, leader, 2, source, home, p.Count)
	if host.rank == leader {
		t := p.leaders(p.Root)
		b.treeUp(&t, p.Hosts.Host(p.Root), 2, source, home, p.Count)
	}
}

// hostHome is where a rank combines vectors in a reduction to a root.
func (b *Builder) hostHome(p *Params, host *team, leader int) Ref {
	switch {
	case p.Rank == p.Root:
		return Ref{Space: Out}
	case host.rank == leader:
		return b.tmp(p.Count)
	}
	return b.leafless(host, leader, 2, p.Count)
}

// Every rank's Out takes part, so the leader combines there.
func allreduceTwoLevel(b *Builder, p *Params) {
	allreduceHosts(b, p, (*Builder).allreduceTeam)
}

// As two_level; between the hosts it is Rabenseifner's.
func allreduceTwoLevelRabenseifner(b *Builder, p *Params) {
	allreduceHosts(b, p, (*Builder).rabenseifnerTeam)
}

func allreduceHosts(b *Builder, p *Params, between func(*Builder, *team, Ref, Ref, int64)) {
	host, home := p.neighbours(), Ref{Space: Out}
	b.treeUp(&host, 0, 2, p.source(), home, p.Count)
	if host.rank == 0 {
		t := p.leaders(-1)
		between(b, &t, home, home, p.Count)
	}
	b.treeDown(&host, 0, 2, home, p.Count)
}

// The leaders' blocks go around a ring of hosts, those of a host together.
func allgatherTwoLevel(b *Builder, p *Params) {
	host, out := p.neighbours(), Ref{Space: Out}
	first := int64(p.Rank-host.rank) * p.Count // where this host's blocks are in Out
	if host.rank == 0 {
		b.own(p)
		for i := 1; i < host.size; i++ {
			b.recv(host.peer(i), out.At(first+int64(i)*p.Count), p.Count)
		}
		b.next()
		b.hostsRing(p)
	} else {
		mine := Ref{Space: In}
		if p.InPlace {
			mine, _ = p.out(p.Rank)
		}
		b.send(host.peer(0), mine, p.Count)
		b.next()
	}
	b.treeDown(&host, 0, 2, out, int64(p.Size)*p.Count)
}

// hostsRing is the leaders' part of allgatherTwoLevel.
func (b *Builder) hostsRing(p *Params) {
	t := p.leaders(-1)
	n := t.size
	up, down := t.peer((t.rank+1)%n), t.peer((t.rank-1+n)%n)
	blocks := func(h int) (Ref, int64) {
		return Ref{Space: Out, Off: int64(p.Hosts.Rank(h, 0)) * p.Count}, int64(p.Hosts.Size(h)) * p.Count
	}
	for i := range n - 1 {
		mine, m := blocks((t.rank - i + n) % n)
		its, k := blocks((t.rank - i - 1 + n) % n)
		b.recv(down, its, k)
		b.send(up, mine, m)
		b.next()
	}
}
