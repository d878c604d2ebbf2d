package doze

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A rank that polls is looked up once for what arrives meanwhile, and not for each arrival.
func TestPollingIsLeftAlone(t *testing.T) {
	p, l := place(t), newLine(t)
	must(t, p.Add(l.r))
	looks := make(chan struct{}, 1000)
	look := p.napper.look
	p.napper.look = func(fd uintptr) bool {
		looks <- struct{}{}
		return look(fd)
	}
	p.Arm(false)
	p.Disarm()
	done := park(p, false)
	for range 50 {
		l.send()
		time.Sleep(time.Millisecond)
		l.poll()
	}
	if n := len(looks); n > 5 {
		t.Errorf("50 arrivals while a rank polled made the sleeper look %d times", n)
	}
	p.Interrupt()
	ends(t, done, "Interrupt")
}

// Without a descriptor for the netpoller a thread sleeps instead.
func TestNapWithoutNetpoller(t *testing.T) {
	p, l := place(t), newLine(t)
	must(t, p.Add(l.r))
	var limit unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &limit))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	done := park(p, false)
	for limit := time.Now().Add(patience); p.busy() == 0 && time.Now().Before(limit); {
		time.Sleep(time.Millisecond)
	}
	l.send()
	p.Arm(false)
	ends(t, done, "something is there")
	if p.napper.file != nil {
		t.Error("there was a descriptor after all")
	}
}
