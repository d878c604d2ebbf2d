//go:build !linux

package launcher

import "errors"

func (r *run) serveStatus() (end func()) { return func() {} }

// Status asks the gorun with that PID, on this host, what its ranks do.
func Status(int) (string, error) {
	return "", errors.New("gorun status is for Linux; here, Ctrl-\\ in the terminal of the job prints the same and ends it")
}
