// Command guestrun runs a program of this module as ranks on two guests that scripts/guest has joined:
//
//	scripts/guest --hosts 2 -- guestrun [-ppn N] -- prog args...
//
// It is started on both. The first serves the wire-up, where its own ranks and the ranks of the second dial; each
// starts its ranks and ends with the code of the one that failed first. No other machine reaches the guests' network,
// so the key of the wire-up is a fixed one.
//
//	Owns:     the ranks of its guest; in guest 1 the wire-up of the job
//	May call: internal/pmi
//	Never:    boot guests (scripts/guest does); be imported
package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"

	"github.com/gorun-mpi/mpi/internal/place"
	"github.com/gorun-mpi/mpi/internal/pmi"
)

const (
	wireUp = "10.99.0.1:7077"
	name   = "guestrun"
	// patience is how long the second waits for the first, which has been started at the same time.
	patience = 30 * time.Second
)

var key = bytes.Repeat([]byte{7}, 32)

func main() {
	ppn := flag.Int("ppn", 1, "ranks on each guest")
	flag.Parse()
	code, err := run(*ppn, flag.Args())
	if err != nil {
		fmt.Fprintln(os.Stderr, "guestrun:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

func run(ppn int, prog []string) (int, error) {
	host, err := strconv.Atoi(os.Getenv("GUEST_HOST"))
	if err != nil || host < 1 || host > 2 || len(prog) == 0 || ppn < 1 {
		return 2, errors.New("usage, on both of two guests: guestrun [-ppn N] -- prog args...")
	}
	if host == 1 {
		ln, err := net.Listen("tcp", wireUp)
		if err != nil {
			return 1, fmt.Errorf("serving the wire-up: %w", err)
		}
		s := pmi.NewServer(2*ppn, pmi.Options{Name: name, Key: key,
			Mapping: place.Blocks([]int{ppn, ppn}).Mapping()})
		s.Listen(ln)
		go func() {
			for range s.Events() { // a rank that aborts ends by itself, and the others notice
			}
		}()
		defer s.Close()
		defer waitForAll(s, 2*ppn)
	} else if err := reach(); err != nil {
		return 1, err
	}
	return start(host, ppn, prog)
}

// waitForAll serves until the ranks of the other guest have finalized, or for a while.
func waitForAll(s *pmi.Server, size int) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		open := 0
		for rank := range size {
			if st := s.State(rank); st.Joined && !st.Finalized {
				open++
			}
		}
		if open == 0 {
			return
		}
	}
}

func reach() error {
	var last error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		c, err := net.DialTimeout("tcp", wireUp, time.Second)
		if err == nil {
			return c.Close()
		}
		last = err
	}
	return fmt.Errorf("the other guest serves no wire-up: %w", last)
}

func start(host, ppn int, prog []string) (code int, err error) {
	var ranks []*exec.Cmd
	for local := range ppn {
		cmd := exec.Command(prog[0], prog[1:]...)
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.Env = append(os.Environ(),
			pmi.EnvPort+"="+wireUp,
			pmi.EnvID+"="+strconv.Itoa((host-1)*ppn+local),
			pmi.EnvJob+"="+name,
			pmi.EnvKey+"="+base64.RawURLEncoding.EncodeToString(key),
			pmi.EnvLocalRank+"="+strconv.Itoa(local),
			pmi.EnvLocalSize+"="+strconv.Itoa(ppn))
		if err := cmd.Start(); err != nil {
			return 1, fmt.Errorf("starting rank %d of this guest: %w", local, err)
		}
		ranks = append(ranks, cmd)
	}
	for local, cmd := range ranks {
		if e := cmd.Wait(); e != nil && err == nil {
			code, err = 1, fmt.Errorf("rank %d of this guest: %w", local, e)
		}
	}
	return code, err
}
