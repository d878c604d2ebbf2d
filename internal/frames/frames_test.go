package frames

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestNext(t *testing.T) {
	b := Append(nil, Frame{Order, []byte("x")})
	b = Append(b, Frame{Kind: Ping})
	for n := range len(b) - 5 {
		if _, k, need, err := Next(b[:n]); k != 0 || err != nil || need <= n {
			if n >= 6 {
				break
			}
			t.Errorf("of %d bytes: %d, need %d, %v", n, k, need, err)
		}
	}
	f, n, _, err := Next(b)
	if f.Kind != Order || string(f.Body) != "x" || n != 6 || err != nil {
		t.Errorf("%v, %d, %v", f, n, err)
	}
	for _, bad := range [][]byte{{0, 0, 0, 0, 0}, {0, 0, 0, 0, byte(kinds)}, {1, 0, 0, 0, byte(Ping)},
		{0xff, 0xff, 0xff, 0xff, byte(Start)}, {1, 128, 0, 0, byte(Stdout)}} {
		if _, n, _, err := Next(bad); err == nil || n != 0 {
			t.Errorf("%v was taken for a frame of %d bytes", bad, n)
		}
	}
	for k := Kind(1); k < kinds; k++ {
		if k.Up() == k.Down() && k != Ping && k != Pong || k.String() == "" || strings.Contains(k.String(), "Kind") {
			t.Errorf("%v goes up: %v, down: %v", k, k.Up(), k.Down())
		}
	}
}

// What is decoded is encoded again as it was.
func FuzzNext(f *testing.F) {
	f.Add([]byte{})
	f.Add(Append(nil, Frame{Stdout, []byte("text")}))
	f.Add(Append(Append(nil, Frame{Kind: Fence}), Frame{OutputRoom, Room(7)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for {
			fr, n, need, err := Next(b)
			switch {
			case err != nil && (n != 0 || need != 0):
				t.Fatalf("an error and %d bytes", n)
			case err != nil:
				return
			case n == 0 && (need <= len(b) || need > headerSize+16<<20):
				t.Fatalf("%d bytes of %d are needed", need, len(b))
			case n == 0:
				return
			}
			if again := Append(nil, fr); !bytes.Equal(again, b[:n]) || n != need {
				t.Fatalf("%v has %d bytes, encoded %d", fr.Kind, n, len(again))
			}
			if fr.Kind == OutputRoom || fr.Kind == StdinRoom {
				if k, err := RoomOf(fr.Body); (err == nil) != (len(fr.Body) == 4) || k < 0 {
					t.Fatalf("room %d, %v", k, err)
				}
			}
			b = b[n:]
		}
	})
}

// two are the ends of a stream.
type end struct {
	*Link
	conn net.Conn
	got  chan Frame
	lost chan error
}

func ends(t *testing.T, silence time.Duration) (head, agent *end) {
	t.Helper()
	a, b := net.Pipe() // it holds nothing: a write waits for the read
	make := func(conn net.Conn, down bool) *end {
		e := &end{conn: conn, got: make(chan Frame, 10000), lost: make(chan error, 1)}
		e.Link = New(conn, conn, Options{Down: down, Silence: silence,
			Receive: func(f Frame) error {
				if string(f.Body) == "bad" {
					return errors.New("bad")
				}
				e.got <- f
				return nil
			}, Lost: func(err error) { e.lost <- err }})
		t.Cleanup(func() { e.Close(); conn.Close() })
		return e
	}
	return make(a, false), make(b, true)
}

func (e *end) want(t *testing.T, k Kind, body string) {
	t.Helper()
	select {
	case f := <-e.got:
		if f.Kind != k || string(f.Body) != body {
			t.Fatalf("got %v %.20q, want %v %.20q", f.Kind, f.Body, k, body)
		}
	case err := <-e.lost:
		t.Fatalf("the link has ended: %v", err)
	case <-time.After(time.Minute):
		t.Fatalf("no %v frame", k)
	}
}

// Output waits for room, and what is urgent does not wait for output.
func TestCredit(t *testing.T) {
	head, agent := ends(t, time.Hour)
	text := strings.Repeat("0123456789abcdef", (3*Window)/16)
	var sent sync.WaitGroup
	sent.Go(func() {
		if err := agent.SendBulk(StdoutPart, Stdout, []byte(text)); err != nil {
			t.Error(err)
		}
		agent.SendAfter(Finished, nil)
	})
	var got strings.Builder
	take := func(until int) {
		for got.Len() < until {
			f := <-head.got
			got.Write(f.Body)
			if last := got.Len() == len(text); f.Kind != StdoutPart && !last || f.Kind != Stdout && last {
				t.Fatalf("a %v frame that ends at %d", f.Kind, got.Len())
			}
		}
	}
	take(Window)
	agent.Send(Exited, []byte("e")) // there is no room for output: this passes it
	head.want(t, Exited, "e")
	head.Send(OutputRoom, Room(Window/2))
	take(Window + Window/2)
	agent.Send(Exited, []byte("f"))
	head.want(t, Exited, "f")
	head.Send(OutputRoom, Room(Window))
	take(Window*2 + Window/2)
	head.Send(OutputRoom, Room(Window))
	take(3 * Window)
	head.want(t, Finished, "")
	sent.Wait()
	if got.String() != text {
		t.Error("the output is another")
	}
	agent.Drain(time.Minute)
}

// What must not come ends the link: frames of the other direction, room that was not used, garbage.
func TestHostileFrames(t *testing.T) {
	for _, c := range []struct {
		name string
		send []byte
		want string
	}{
		{"other direction", Append(nil, Frame{Order, nil}), "goes the other way"},
		{"too much room", Append(nil, Frame{StdinRoom, Room(1)}), "1 bytes of room, 0 were on their way"},
		{"room past all", Append(nil, Frame{StdinRoom, Room(1 << 31)}), "bytes of room"},
		{"garbage", []byte("hello, world"), "unknown kind"},
		{"refused", Append(nil, Frame{Exited, []byte("bad")}), "bad"},
		{"half a frame", Append(nil, Frame{Exited, []byte("long")})[:7], ErrEnded.Error()},
		{"nothing", nil, ErrEnded.Error()},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, b := net.Pipe()
			lost := make(chan error, 1)
			l := New(a, a, Options{Silence: time.Hour, Lost: func(err error) { lost <- err },
				Receive: func(f Frame) error { return fmt.Errorf("%s", f.Body) }})
			go io.Copy(io.Discard, b)
			b.Write(c.send)
			b.Close()
			if err := <-lost; !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			l.Send(Order, nil)
			if l.SendBulk(File, File, []byte("x")) == nil || l.SendAfter(Start, nil) == nil {
				t.Error("a link that has ended takes more")
			}
		})
	}
}

// An end that is silent is lost, unless it is known to be stopped. One that answers pings is not, and none is while
// what came before is dealt with.
func TestSilence(t *testing.T) {
	const silence = 80 * time.Millisecond
	head, agent := ends(t, silence)
	select {
	case err := <-head.lost:
		t.Error(err)
	case err := <-agent.lost:
		t.Error(err)
	case <-time.After(5 * silence):
	}
	a, b := net.Pipe()
	defer b.Close()
	go io.Copy(io.Discard, b)
	lost, busy := make(chan error, 1), make(chan struct{})
	l := New(a, a, Options{Silence: time.Hour, Lost: func(err error) { lost <- err },
		Receive: func(Frame) error { <-busy; return nil }})
	stays := func(what string) {
		t.Helper()
		select {
		case err := <-lost:
			t.Fatalf("%s is lost: %v", what, err)
		case <-time.After(3 * silence):
		}
	}
	l.Pause(true)
	l.SetSilence(silence)
	stays("a stopped end")
	b.Write(Append(nil, Frame{Exited, nil}))
	l.Pause(false)
	stays("one that waits for us")
	close(busy)
	if err := <-lost; !strings.Contains(err.Error(), "not been heard for "+silence.String()) {
		t.Error(err)
	}
}

// A peer that takes nothing is given up before memory is.
func TestDeafPeer(t *testing.T) {
	a, b := net.Pipe()
	defer b.Close()
	lost := make(chan error, 1)
	l := New(a, a, Options{Silence: time.Hour, Lost: func(err error) { lost <- err }})
	body := make([]byte, 1<<20)
	for len(lost) == 0 { // a batch is with the stream
		l.Send(Put, body)
	}
	if err := <-lost; !strings.Contains(err.Error(), "takes nothing") {
		t.Error(err)
	}
}

// Drain waits as long as it takes, however slow the other end is, and no longer.
func TestDrainWithoutLimit(t *testing.T) {
	a, b := net.Pipe() // a write ends when all of it has been read
	defer b.Close()
	l := New(a, a, Options{Silence: time.Hour, Lost: func(error) {}})
	defer l.Close()
	const pieces, head = 2, 5
	drained := make(chan bool)
	go func() {
		defer close(drained)
		l.SendBulk(Stdout, Stdout, make([]byte, pieces*Piece))
		l.SendAfter(Finished, nil)
		l.Drain(math.MaxInt64)
	}()
	left := pieces*(head+Piece) + head
	for part := make([]byte, 1000); left > 0; time.Sleep(time.Millisecond) {
		select {
		case <-drained:
			t.Fatalf("drained, and %d bytes are to come", left)
		default:
		}
		n, err := b.Read(part)
		if left -= n; err != nil {
			t.Fatal(err)
		}
	}
	<-drained
}

// What an end has said before it has gone is heard, although it takes nothing more.
func TestLastWords(t *testing.T) {
	r, w := io.Pipe() // what the other end says
	got := make(chan Frame, 1)
	lost := make(chan error, 1)
	l := New(r, closedWriter{}, Options{Silence: time.Hour, Lost: func(err error) { lost <- err },
		Receive: func(f Frame) error { got <- f; return nil }})
	l.Send(Order, nil)
	for l.SendAfter(Start, nil) == nil { // until the failure is known
	}
	if l.SendBulk(Stdin, Stdin, []byte("x")) == nil {
		t.Error("a broken link takes input")
	}
	l.Drain(time.Hour)
	w.Write(Append(nil, Frame{Kind: Finished}))
	if f := <-got; f.Kind != Finished {
		t.Errorf("%v", f)
	}
	w.Close()
	if err := <-lost; err != ErrEnded {
		t.Error(err)
	}
	// One that only says nothing more is lost too.
	r, w = io.Pipe()
	defer w.Close()
	l = New(r, closedWriter{}, Options{Silence: time.Hour, Lost: func(err error) { lost <- err }})
	l.Send(Order, nil)
	if err := <-lost; !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

type closedWriter struct{}

func (closedWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
