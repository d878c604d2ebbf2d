package auth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"
)

// Reason is why a connection is refused or a handshake has failed. An Acceptor counts by it.
type Reason uint8

const (
	accepted     Reason = iota // nothing is wrong
	NotGorun                   // what came was no message of the handshake
	silent                     // closed before it had said anything
	slow                       // did not go on in time
	otherVersion               // of another version of the handshake
	otherRank                  // wants another rank, or is none of the job
	otherTLS                   // one side wants TLS, the other does not
	unproved                   // a seal is wrong
	OtherUser                  // a process of another user of this host
	crowded                    // closed to make room
	elsewhere                  // came in at an address that is not used
	// The following are no refusals: the dialler has given up, as happy eyeballs does, or the network broke, or this
	// side cannot.
	Gone
	Broken
	helpless
	reasons
)

// words go after "rank 3" or "10.0.0.7".
var words = [reasons]string{
	accepted:     "is as it should be",
	NotGorun:     "spoke something else",
	silent:       "closed the connection without a word",
	slow:         "did not go on in time",
	otherVersion: "speaks another version of the protocol",
	otherRank:    "wanted another rank of the job, or is none of its ranks",
	otherTLS:     "differs about TLS (GORUN_TCP_TLS must be the same for all ranks)",
	unproved:     "did not prove the job's secret",
	OtherUser:    "belongs to another user",
	crowded:      "took the place of others (too many connections at once)",
	elsewhere:    "came to an address that is not used (GORUN_TCP_IF)",
	Gone:         "closed the connection",
	Broken:       "was cut off",
	helpless:     "met a rank that could not answer",
}

// silent reports whether the other side is told nothing, and the kernel keeps nothing of the connection.
func (r Reason) silent() bool {
	return r == NotGorun || r == slow || r == unproved || r == OtherUser || r == crowded || r == elsewhere
}

// refused reports whether the connection counts as refused.
func (r Reason) refused() bool { return r > accepted && r < Gone }

// Error is a failed handshake.
type Error struct {
	Why  Reason
	text string // what is known beyond words[Why]
	err  error
}

func (e *Error) Error() string {
	switch {
	case e.text != "":
		return e.text
	case e.err != nil:
		return words[e.Why] + ": " + e.err.Error()
	}
	return words[e.Why]
}

func (e *Error) Unwrap() error { return e.err }

// Why returns the reason of a failed handshake, or 0 if err is not from a handshake.
func Why(err error) Reason {
	var e *Error
	if errors.As(err, &e) {
		return e.Why
	}
	return accepted
}

// ErrTurnedAway means that the other side has closed the connection before its answer. Too many connections may have
// been open there; dialling again may help. Another secret looks the same.
var ErrTurnedAway = errors.New("closed the connection: it is of another job or has another secret, has ended, " +
	"or has too many connections")

// TurnedAway is ErrTurnedAway because of err where that says that the other side has closed the connection, else err.
func TurnedAway(err error) error {
	if !hungUp(err) {
		return err
	}
	return &Error{Why: Gone, text: ErrTurnedAway.Error(), err: fmt.Errorf("%w: %w", ErrTurnedAway, err)}
}

// hungUp reports whether the other side has closed the connection, or its process has ended.
func hungUp(err error) bool {
	for _, end := range []error{io.EOF, io.ErrUnexpectedEOF, io.ErrClosedPipe, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

const (
	pauseMin = 25 * time.Millisecond
	pauseMax = 400 * time.Millisecond

	queuePause = time.Millisecond
)

// Retry calls dial until it is no longer turned away, with pauses that grow and together are about as long as patience.
// How long a call takes does not count: either side may have stood still in it. A listener on this host whose queue is
// full (EAGAIN) is dialled for as long as ctx says, since it empties its queue unless it is stopped.
func Retry(ctx context.Context, patience time.Duration, dial func() error) error {
	pause, waited := pauseMin, time.Duration(0)
	for {
		err, next := dial(), pause
		switch {
		case errors.Is(err, syscall.EAGAIN):
			next = queuePause
		case !errors.Is(err, ErrTurnedAway) || waited >= patience:
			return err
		default:
			waited += pause
			pause = min(2*pause, pauseMax)
		}
		select {
		case <-time.After(next):
		case <-ctx.Done():
			return err
		}
	}
}
