package eventset

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gorun-mpi/mpi/transport"
)

// While a rank polls, its sleeping goroutine checks the set once, and not for each arrival.
func TestPollingIsLeftAlone(t *testing.T) {
	d := kinds["one descriptor"](t)
	s := d.set()
	checks := make(chan struct{}, 1000)
	check := s.fds.waiter.check
	s.fds.waiter.check = func(fd uintptr) bool {
		checks <- struct{}{}
		return check(fd)
	}
	s.Arm(transport.Any, false)
	s.Disarm()
	done := park(s, false)
	for range 50 {
		d.arrive()
		time.Sleep(time.Millisecond)
		d.poll()
	}
	if n := len(checks); n > 5 {
		t.Errorf("50 arrivals while a rank polled made its goroutine check %d times", n)
	}
	s.Interrupt()
	ends(t, done, "Interrupt")
}

// A descriptor of OnlyArmed shows nothing to the sets of the sleepers while the device is not armed, at first too.
func TestOnlyArmed(t *testing.T) {
	d := kinds["one descriptor, while it is armed"](t)
	s := d.set()
	var fds [4]int
	for round := range 3 {
		for _, armed := range []bool{false, true} {
			if armed && !s.Arm(transport.Any, round%2 == 0) {
				t.Fatal("not armed, and nothing is there")
			}
			d.arrive()
			if seen := s.fds.shared.ready(fds[:]) > 0; seen != armed {
				t.Errorf("round %d: armed %v, and an arrival is seen: %v", round, armed, seen)
			}
			s.Disarm()
			if s.fds.shared.ready(fds[:]) > 0 {
				t.Errorf("round %d: seen after Disarm", round)
			}
			d.poll()
		}
	}
}

// Without a descriptor for the netpoller a thread sleeps instead.
func TestWaitWithoutNetpoller(t *testing.T) {
	d := kinds["one descriptor"](t)
	s := d.set()
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: limit.Max}); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	s.Arm(transport.Any, false)
	done := park(s, false)
	for limit := time.Now().Add(patience); s.parking() == 0 && time.Now().Before(limit); {
		time.Sleep(time.Millisecond)
	}
	d.arrive()
	ends(t, done, "something is there")
	if s.fds.waiter.file != nil {
		t.Error("the waiter has a descriptor after all")
	}
}

// The error of a set that cannot be made says what the system refused, and no descriptor is left open.
func TestNoDescriptors(t *testing.T) {
	for name, kind := range kinds {
		d := kind(t)
		var limit unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		for room := range uint64(5) {
			next, err := unix.Open("/dev/null", unix.O_RDONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			unix.Close(next)
			unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(next) + room, Max: limit.Max})
			s, err := New(d)
			unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
			if err == nil {
				s.Close()
			} else if room == 0 && name == "calls" {
				t.Errorf("%s: %v, and it needs no descriptor", name, err)
			}
		}
	}
}

// An Interrupt after Close writes into no descriptor that has got the number of one that is closed.
func TestInterruptAfterClose(t *testing.T) {
	for name, kind := range kinds {
		s := kind(t).set()
		s.Arm(transport.Any, true)
		s.Disarm()
		s.Close()
		var taken []int // all numbers that were free, and some more
		for range 20 {
			fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
			if err != nil {
				t.Fatal(err)
			}
			taken = append(taken, fd)
		}
		s.Interrupt()
		s.notify(true)
		for _, fd := range taken {
			if _, err := unix.Read(fd, make([]byte, 8)); err != unix.EAGAIN {
				t.Errorf("%s: Interrupt wrote into descriptor %d, which is another one's", name, fd)
			}
			unix.Close(fd)
		}
	}
}
