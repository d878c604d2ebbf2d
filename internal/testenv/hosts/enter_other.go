//go:build !linux

package hosts

// Do is for Linux, which alone has namespaces.
func (h *Hosts) Do(int, func() error) error { return ErrUnavailable }
