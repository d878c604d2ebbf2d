package accel

import (
	"errors"
	"strings"
	"testing"
)

// A program that was built without a driver says what to type.
func TestInUseSaysHowToBuild(t *testing.T) {
	if _, err := InUse(); !errors.Is(err, ErrNoDriver) || !strings.HasSuffix(err.Error(), "(Debian: apt-get install gcc "+
		"libc6-dev) by CGO_ENABLED=1 go build") {
		t.Error(err)
	}
}
