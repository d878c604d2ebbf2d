package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"
)

// doctorFlags say which hosts are looked at, and how they are reached.
type doctorFlags struct {
	place placeFlags
	shell string
	gorun string
}

// atOnce is how many hosts are visited at a time.
const atOnce = 32

func doctorCommand(stdout *os.File, code *int) *cobra.Command {
	var d doctorFlags
	c := &cobra.Command{
		Use:   "doctor [-H LIST | --hostfile FILE]",
		Short: "check hosts for what jobs need: ssh, versions, ports, limits, clocks; say what mends it",
		Long: `Looks at this host and those that are named. Each of the others is reached by ssh, and needs gorun
at the same path. Says what is wrong and the command that mends it; exit status 1 if anything is.`,
		Args: noArguments,
		RunE: func(*cobra.Command, []string) error {
			ok, err := d.run(stdout)
			if err == nil && !ok {
				*code = 1
			}
			return err
		},
	}
	c.Flags().VarP(&d.place.list, "host", "H", "the hosts in a `LIST`: a,n[01-16]")
	c.Flags().VarP(&d.place.file, "hostfile", "f", "the same from a `FILE`, one host a line")
	c.Flags().StringVar(&d.shell, "launch-agent", "ssh -o BatchMode=yes -o ConnectTimeout=10",
		"the remote shell: a `COMMAND` that is followed by the host and a command")
	c.Flags().StringVar(&d.gorun, "gorun", "", "the `PATH` of gorun on the hosts (default: that of this one)")
	return c
}

// run reports whether nothing is wrong.
func (d *doctorFlags) run(w io.Writer) (ok bool, err error) {
	hosts, err := d.place.hosts()
	if err != nil {
		return false, usageError{err}
	}
	if d.gorun == "" {
		if d.gorun, err = os.Executable(); err != nil {
			return false, err
		}
	}
	shell := strings.Fields(d.shell)
	if len(shell) == 0 {
		return false, usageError{errors.New("--launch-agent is empty: name a command such as ssh")}
	}
	here, err := visitHere()
	if err != nil {
		return false, err
	}
	defer here.close()
	visits := make([]*visit, len(hosts))
	forAll(len(hosts), func(i int) { visits[i] = visitHost(shell, hosts[i].Name, d.gorun) })
	defer func() {
		for _, v := range visits {
			v.close()
		}
	}()
	links := tryLinks(here, visits)
	report := judge(here, visits, links, d.gorun)
	printVisits(w, here, visits)
	for _, f := range report {
		fmt.Fprintf(w, "\nwrong on %s: %s\n  mend: %s\n", strings.Join(f.hosts, ", "), f.wrong, f.mend)
	}
	if len(report) == 0 {
		fmt.Fprintln(w, "\nnothing is wrong")
	}
	return len(report) == 0, nil
}

// forAll calls f with 0 to n-1, so many at once.
func forAll(n int, f func(i int)) {
	var wg sync.WaitGroup
	room := make(chan struct{}, atOnce)
	for i := range n {
		room <- struct{}{}
		wg.Go(func() {
			f(i)
			<-room
		})
	}
	wg.Wait()
}

// link is a connection that was tried.
type link struct {
	from, to string
	err      error
}

// tryLinks tries this host to each of the others and back, and each of those to the next one.
func tryLinks(here *visit, visits []*visit) (links []link) {
	var good []*visit
	for _, v := range visits {
		if v.err == nil {
			good = append(good, v)
		}
	}
	var mu sync.Mutex
	try := func(from, to *visit) {
		err := from.reach(to)
		mu.Lock()
		links = append(links, link{from.name, to.name, err})
		mu.Unlock()
	}
	forAll(len(good), func(i int) {
		try(here, good[i])
		try(good[i], here)
		if len(good) > 1 {
			try(good[i], good[(i+1)%len(good)])
		}
	})
	return links
}

// printVisits prints a line for each host.
func printVisits(w io.Writer, here *visit, visits []*visit) {
	rows := [][]string{{"host", "gorun", "system", "kernel", "CPUs", "readv", "memlock", "RDMA", "clock"}}
	for _, v := range append([]*visit{here}, visits...) {
		if v.err != nil {
			rows = append(rows, []string{v.name, "not reached"})
			continue
		}
		f := v.facts
		lock := "unlimited"
		if f.Memlock >= 0 {
			lock = fmt.Sprintf("%d KiB", f.Memlock>>10)
		}
		readv, _, _ := strings.Cut(f.Readv, ",")
		readv, _, _ = strings.Cut(readv, ":")
		version, _, _ := strings.Cut(f.Gorun, " (")
		rows = append(rows, []string{v.name, version, f.System + "/" + f.Arch, strings.TrimPrefix(f.Kernel, "linux "),
			fmt.Sprint(f.CPUs.Usable), readv, lock, fmt.Sprint(len(f.RDMA.Devices)),
			fmt.Sprintf("%+.3f s", v.skew.Seconds())})
	}
	printTable(w, rows)
}
