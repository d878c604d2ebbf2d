//go:build !linux

package netns

// Do is for Linux, which alone has namespaces.
func (h *Hosts) Do(int, func() error) error { return ErrUnavailable }
