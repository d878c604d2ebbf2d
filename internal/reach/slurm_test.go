package reach

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A job that ends while srun is being started leaves no srun, and one that ends before starts none.
func TestSlurmEndsWhileItStarts(t *testing.T) {
	bin, here := t.TempDir(), startBy
	defer func(was time.Duration) { startBy, ending = here, was }(ending)
	ending = time.Hour
	if err := os.WriteFile(filepath.Join(bin, "srun"), []byte("#!/bin/sh\nexec cat\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	newSlurm := func() *Slurm {
		return NewSlurm(SlurmOptions{Self: me(t), Hosts: []string{"a"}, Environ: os.Environ(), Say: func(string) {},
			Log: func(string, ...any) {}})
	}
	s, ended := newSlurm(), make(chan struct{})
	startBy = func(start func() (int, error)) error {
		go func() {
			s.Close()
			close(ended)
		}()
		time.Sleep(10 * time.Millisecond) // mostly it is at the end by then, if it does not wait
		_, err := start()
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := s.Open(ctx, "a"); err == nil || ctx.Err() != nil {
		t.Errorf("after its end: %v, %v", err, ctx.Err())
	}
	<-ended
	select {
	case <-s.srun.ended:
	default:
		t.Error("srun lives")
	}
	startBy, s = here, newSlurm()
	s.Close()
	if _, err := s.Open(ctx, "a"); err == nil || s.srun != nil {
		t.Errorf("begun after its end: %v", err)
	}
}
