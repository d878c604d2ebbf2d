package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorun-mpi/mpi/internal/join"
	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/reach"
	"github.com/gorun-mpi/mpi/launcher"
	"github.com/spf13/cobra"
)

// doctorFlags say which hosts are looked at, and how they are reached.
type doctorFlags struct {
	place  placeFlags
	asJSON bool
}

// atOnce is how many hosts are visited at a time.
const atOnce = 32

func doctorCommand(stdout, stderr *os.File, code *int) *cobra.Command {
	var d doctorFlags
	c := &cobra.Command{
		Use:   "doctor [-H LIST | --hostfile FILE]",
		Short: "check hosts for what jobs need: ssh, builds, ports, limits, clocks; say what mends it",
		Long: `Looks at the hosts that a job with these flags would have: those that are named, else those of the
Slurm allocation, else this one. gorun comes to each of them as it does for a job, and is copied there if a
job would copy it. Each host then connects to each other as ranks do, with GORUN_TCP_IF and GORUN_TCP_PORTS.
Says what is wrong and the command that mends it; exit status 1 if anything is. GPUs that no RDMA device
reaches are a note, or wrong with GORUN_GPUDIRECT=on.`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			ok, err := d.run(stdout, stderr)
			if err == nil && !ok {
				*code = 1
			}
			return err
		},
	}
	d.place.registerHosts(c.Flags())
	d.place.registerWay(c.Flags())
	c.Flags().BoolVar(&d.asJSON, "json", false, "print the same as JSON, for programs; the names in it stay")
	return c
}

// report is what gorun doctor --json prints.
type report struct {
	OK         bool      `json:"ok"`
	Gorun      string    `json:"gorun"`                // version
	Build      string    `json:"build"`                // what gorun on the other hosts is compared with
	NotCopied  string    `json:"not_copied,omitempty"` // why a host without this build is not sent it
	Allocation string    `json:"allocation,omitempty"` // of Slurm
	Hosts      []*visit  `json:"hosts"`
	Findings   []finding `json:"findings"`
}

// run reports whether nothing is wrong.
func (d *doctorFlags) run(w, stderr *os.File) (ok bool, err error) {
	environ := os.Environ()
	set, warnings, err := join.Settings(environ)
	if err != nil {
		return false, err
	}
	for _, warning := range warnings {
		fmt.Fprintf(stderr, "gorun: warning: %s\n", warning)
	}
	job := launcher.Job{Options: launcher.Options{LogLevel: set.Log}, Environ: environ}
	if _, err := d.place.fill(&job); err != nil {
		return false, usageError{err}
	}
	me, err := reach.Me()
	if err != nil {
		return false, err
	}
	survey, err := job.Survey(me.For(reach.Examine), func(line string) { fmt.Fprintln(stderr, "gorun:", line) })
	if err != nil {
		return false, usageError{err}
	}
	defer survey.Close()
	patience := cmp.Or(job.Agents.Patience, launcher.DefaultPatience)
	here, visits := visitAll(survey, ownSettings(environ), patience)
	defer func() {
		for _, v := range visits {
			v.close()
		}
	}()
	words := job.Agents.Shell
	if words == nil {
		words = reach.SSH
	}
	r := report{Gorun: version(), Build: me.Build, Hosts: visits}
	if why := me.Copied(); why != nil {
		r.NotCopied = why.Error()
	}
	if survey.Slurm {
		r.Allocation = fmt.Sprintf("Slurm job %s on %s", os.Getenv("SLURM_JOB_ID"), os.Getenv("SLURM_JOB_NODELIST"))
	}
	e := exam{local: here, visits: visits, ports: set.TCPPorts, shell: words, path: me.Path,
		aliasesFail: survey.OneName, direct: set.GPUDirect}
	if set.Transports == nil || set.Transports[0] != "ucx" { // the others make their connections by way of TCP
		e.links = tryLinks(visits)
	}
	r.Findings = e.diagnose()
	r.OK = nothingWrong(r.Findings)
	if d.asJSON {
		out := json.NewEncoder(w)
		out.SetIndent("", "  ")
		return r.OK, out.Encode(r)
	}
	r.print(w)
	return r.OK, nil
}

// visitAll visits the hosts of a job, in its order. here is this one, which need not be among them.
func visitAll(s *launcher.Survey, environ []string, patience time.Duration) (here *visit, visits []*visit) {
	visits = make([]*visit, len(s.Hosts))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	width := atOnce
	if s.Slurm { // its agents come when they like, and none waits for its turn
		width = len(s.Hosts)
	}
	forAll(len(s.Hosts), width, func(i int) {
		h := s.Hosts[i]
		if h.Name == s.Here && !s.Slurm {
			visits[i] = visitHere(h, environ)
			return
		}
		ctx := ctx
		if !s.Slurm { // each has its time when its turn has come
			own, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			ctx = own
		}
		visits[i] = visitHost(ctx, s.Way, h, environ)
	})
	for _, v := range visits {
		if v.site != nil {
			return v, visits
		}
	}
	here = visitHere(place.Host{Name: s.Here}, environ)
	here.close()
	return here, visits
}

// forAll calls f with 0 to n-1, so many at once.
func forAll(n, width int, f func(i int)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, max(width, 1))
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			f(i)
			<-room
		})
	}
	wg.Wait()
}

// link is what became of the ways from one host to another: for each port that was tried, the addresses in the order
// in which ranks try them.
type link struct {
	from, to *visit
	ways     [][]attempt
}

// batch is how many hosts another one tries at a time.
const batch = 64

// tryLinks has each host try each other, as ranks of the job may have to.
func tryLinks(visits []*visit) (links []link) {
	var good []*visit
	for _, v := range visits {
		if v.err == nil && v.greeting.Blocked == "" {
			good = append(good, v)
		}
	}
	var mu sync.Mutex
	forAll(len(good), atOnce, func(i int) {
		from := good[i]
		for first := 0; first < len(good); first += batch {
			var q question
			var to []*visit
			for _, peer := range good[first:min(first+batch, len(good))] {
				if peer != from {
					to = append(to, peer)
					q.Dial = append(q.Dial, target{peer.greeting.Addresses, peer.greeting.Token})
				}
			}
			if len(to) == 0 {
				continue
			}
			a, err := from.ask(q)
			if err == nil && len(a.Ways) != len(to) {
				err = fmt.Errorf("it tried %d hosts of %d", len(a.Ways), len(to))
			}
			if err != nil {
				from.lost(err)
				return
			}
			mu.Lock()
			for k, ways := range a.Ways {
				links = append(links, link{from, to[k], ways})
			}
			mu.Unlock()
		}
	})
	return links
}

// print prints the hosts, those that are alike in one line, and what is wrong.
func (r *report) print(w io.Writer) {
	copied := "sent to hosts that have none of this build"
	if r.NotCopied != "" {
		copied = "not sent to hosts that have none of this build: " + r.NotCopied
	}
	fmt.Fprintf(w, "gorun %s, build %s, %s\n", r.Gorun, r.Build, copied)
	if r.Allocation != "" {
		fmt.Fprintln(w, r.Allocation)
	}
	fmt.Fprintln(w)
	rows := r.fold(hostHeads, (*visit).row)
	printTable(w, rows)
	if rows = r.fold(gpuHeads, (*visit).gpuRow); len(rows) > 1 {
		fmt.Fprintln(w)
		printTable(w, rows)
	}
	for _, f := range r.Findings {
		f.print(w)
	}
	if r.OK {
		fmt.Fprintln(w, "\nnothing is wrong")
	}
}

// hostHeads and gpuHeads are the heads of the tables, after the hosts' names.
var (
	hostHeads = []string{"gorun", "system", "CPUs", "readv", "memlock", "files", "processes", "MTU", "RDMA", "clock"}
	gpuHeads  = []string{"GPUs", "memory", "peers", "driver", "GPUDirect"}
)

// fold makes a table of what row says of each host, in which hosts that are alike share a line. A host of which row
// says nothing is left out.
func (r *report) fold(heads []string, row func(*visit) []string) [][]string {
	rows := [][]string{append([]string{"host"}, heads...)}
	index := map[string]int{} // of a row
	names := [][]string{nil}
	for _, v := range r.Hosts {
		cells := row(v)
		if cells == nil {
			continue
		}
		key := strings.Join(cells, "\x00")
		i, again := index[key]
		if !again {
			i = len(rows)
			index[key] = i
			rows, names = append(rows, append([]string{""}, cells...)), append(names, nil)
		}
		names[i] = append(names[i], v.Name)
	}
	for i := 1; i < len(rows); i++ {
		rows[i][0] = place.Fold(names[i])
	}
	return rows
}

// row is what the table says of a host after its name.
func (v *visit) row() []string {
	if v.err != nil {
		return append([]string{"not reached"}, slices.Repeat([]string{dash("")}, len(hostHeads)-1)...)
	}
	f := v.Facts
	limit := func(n int64, unit string, shift int) string {
		if n < 0 {
			return "unlimited"
		}
		return strconv.FormatInt(n>>shift, 10) + unit
	}
	mtu := []string{}
	for _, i := range f.Interfaces {
		if !i.Loopback && len(i.Addresses) > 0 {
			mtu = append(mtu, strconv.Itoa(i.MTU))
		}
	}
	readv, _, _ := strings.Cut(f.Readv, ",")
	readv, _, _ = strings.Cut(readv, ":")
	return []string{v.Gorun, f.System + "/" + f.Arch, strconv.Itoa(f.CPUs.Usable), readv,
		limit(f.Memlock, " KiB", 10), limit(f.Files, "", 0), limit(f.Processes, "", 0),
		dash(strings.Join(mtu, ",")), strconv.Itoa(len(f.RDMA.Devices)),
		fmt.Sprintf("%+.1f s", v.Skew.Round(100*time.Millisecond).Seconds())}
}
