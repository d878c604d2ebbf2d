package place

import (
	"strconv"
	"strings"
)

// Host is a host as its user or scheduler names it.
type Host struct {
	Name  string
	Slots int // for how many ranks it is; 0: not said
}

// List reads the value of -H: a:4,n[01-16]:2,localhost.
func List(source, text string) ([]Host, error) {
	r := &reader{source: source, text: text}
	var c collection
	for r.skip(", \t\n") {
		names, slots, err := r.host()
		if err == nil {
			err = r.ends(", \t\n")
		}
		if err == nil {
			err = c.add(r, names, slots)
		}
		if err != nil {
			return nil, err
		}
	}
	if len(c.hosts) == 0 {
		return nil, r.wrong(0, "no host is named: write a:4,b:4")
	}
	return c.hosts, nil
}

// Hostfile reads the text of a hostfile: one host a line, or a range of them, with "slots=N" or ":N" behind it; #
// begins a comment. A host that is named again has so many slots more. Commas between hosts, a byte order mark and
// "slots = N" are for the files of other launchers, as is max_slots, which bounds nothing here.
func Hostfile(source, text string) ([]Host, error) {
	var c collection
	number := 0
	for line := range strings.Lines(strings.TrimPrefix(text, "\ufeff")) {
		number++
		line, _, _ = strings.Cut(line, "#")
		r := &reader{source: source, line: number, text: strings.TrimRight(line, " \t\r\n")}
		for r.skip(", \t") {
			if err := r.hostOfFile(&c); err != nil {
				return nil, err
			}
		}
	}
	if len(c.hosts) == 0 {
		return nil, &TextError{source, max(number, 1), 1, "no host is named: write one a line, as in: node1 slots=4"}
	}
	return c.hosts, nil
}

// hostOfFile reads a host, and what is said of it.
func (r *reader) hostOfFile(c *collection) error {
	names, slots, err := r.host()
	if err == nil {
		err = r.ends(", \t")
	}
	if err != nil {
		return err
	}
	for r.skip(" \t") && !r.nextIn(",") {
		at := r.at
		key := r.take(func(c byte) bool { return strings.IndexByte(" \t,=", c) < 0 })
		r.skip(" \t")
		bound := key == "max_slots" || key == "max-slots"
		switch {
		case key != "slots" && !bound || !r.nextIn("="):
			r.at = at
			word := r.take(func(c byte) bool { return strings.IndexByte(" \t,", c) < 0 })
			return r.wrong(at, "%.40q is not known: what may follow a host is slots=N, or a comma and another host", word)
		case slots != 0 && !bound:
			return r.wrong(at, "the slots of this host are given twice")
		}
		r.at++
		r.skip(" \t")
		n, err := r.slots()
		if err == nil {
			err = r.ends(", \t")
		}
		if err != nil {
			return err
		}
		if !bound {
			slots = n
		}
	}
	return c.add(r, names, slots)
}

// host reads a name, or a range of names, with the name of a user before it, and :N behind it. slots is 0 if there is
// none.
func (r *reader) host() (names []string, slots int, err error) {
	user := r.user()
	if names, err = r.names(); err != nil {
		return nil, 0, err
	}
	for i := range names {
		names[i] = user + names[i]
	}
	if !r.nextIn(":") {
		return names, 0, nil
	}
	r.at++
	slots, err = r.slots()
	return names, slots, err
}

// user reads "name@", or nothing. It does not begin as an option of a remote shell does.
func (r *reader) user() string {
	name, _, ok := strings.Cut(r.text[r.at:], "@")
	other := func(c rune) bool { return c > 0x7f || !nameByte(byte(c)) }
	if !ok || name == "" || strings.IndexFunc(name, other) >= 0 || strings.IndexByte("-.", name[0]) >= 0 {
		return ""
	}
	r.at += len(name) + 1
	return name + "@"
}

func (r *reader) slots() (int, error) {
	at := r.at
	text := r.take(digit)
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > MaxRanks {
		return 0, r.wrong(at, "the number of slots is a whole number from 1 to %d", MaxRanks)
	}
	return n, nil
}

// collection is hosts in the order in which they were first named. Letters of either case are the same in a name.
type collection struct {
	hosts []Host
	index map[string]int // by the name in small letters
}

// add notes hosts. One that is named again has the slots of both, and where none are said it has one.
func (c *collection) add(r *reader, names []string, slots int) error {
	if c.index == nil {
		c.index = map[string]int{}
	}
	for _, name := range names {
		key := strings.ToLower(name)
		i, again := c.index[key]
		if again {
			c.hosts[i].Slots = min(max(c.hosts[i].Slots, 1)+max(slots, 1), MaxRanks)
			continue
		}
		if len(c.hosts) == MaxHosts {
			return r.wrong(0, "more than %d hosts", MaxHosts)
		}
		c.index[key] = len(c.hosts)
		c.hosts = append(c.hosts, Host{name, slots})
	}
	return nil
}

// Slurm returns the hosts of the allocation that the variables describe, or nil without an allocation.
func Slurm(env func(string) string) ([]Host, error) {
	name, list := "SLURM_JOB_NODELIST", env("SLURM_JOB_NODELIST")
	if list == "" {
		name, list = "SLURM_NODELIST", env("SLURM_NODELIST")
	}
	names, err := Nodelist(name, list)
	if err != nil {
		return nil, err
	}
	slots, err := slurmSlots(env, len(names))
	if err != nil {
		return nil, err
	}
	var hosts []Host
	for i, name := range names {
		h := Host{Name: name}
		if slots != nil {
			h.Slots = slots[i]
		}
		hosts = append(hosts, h)
	}
	return hosts, nil
}

// slurmSlots is for how many ranks each of n hosts is: what was asked for, else as its CPUs say; nil: not known. In a
// step the variable about tasks speaks of the hosts of the step.
func slurmSlots(env func(string) string, n int) ([]int, error) {
	slots, err := TasksPerNode("SLURM_TASKS_PER_NODE", env("SLURM_TASKS_PER_NODE"))
	if err != nil || len(slots) == n {
		return slots, err
	}
	slots, err = TasksPerNode("SLURM_JOB_CPUS_PER_NODE", env("SLURM_JOB_CPUS_PER_NODE"))
	if err != nil || len(slots) != n {
		return nil, err
	}
	if each, err := strconv.Atoi(env("SLURM_CPUS_PER_TASK")); err == nil && each > 0 {
		for i := range slots {
			slots[i] = max(slots[i]/each, 1)
		}
	}
	return slots, nil
}

// TasksPerNode reads 4(x3),2: four on each of three hosts, and two on the last.
func TasksPerNode(source, text string) (tasks []int, err error) {
	r := &reader{source: source, text: text}
	for r.at < len(r.text) {
		at := r.at
		n, err := r.slots()
		if err != nil {
			return nil, err
		}
		times := 1
		if strings.HasPrefix(r.text[r.at:], "(x") {
			r.at += len("(x")
			times, err = strconv.Atoi(r.take(digit))
			if err != nil || times < 1 || !r.nextIn(")") {
				return nil, r.wrong(at, "this is no number of tasks such as 4 or 4(x3)")
			}
			r.at++
		}
		if times > MaxHosts-len(tasks) {
			return nil, r.wrong(at, "more than %d hosts", MaxHosts)
		}
		for range times {
			tasks = append(tasks, n)
		}
		switch {
		case r.at == len(r.text):
		case !r.nextIn(",") || r.at+1 == len(r.text):
			return nil, r.wrong(r.at, "this is no list of tasks such as 4(x3),2")
		default:
			r.at++
		}
	}
	return tasks, nil
}
