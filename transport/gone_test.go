package transport

import (
	"errors"
	"io"
	"testing"
)

// The text of Gone is its own, and errors.Is finds the class and the cause.
func TestGone(t *testing.T) {
	err := Gone("its process has ended: %w", io.EOF)
	if err.Error() != "its process has ended: EOF" || !errors.Is(err, ErrPeerGone) || !errors.Is(err, io.EOF) ||
		errors.Is(err, ErrTimeout) {
		t.Errorf("%v", err)
	}
}
