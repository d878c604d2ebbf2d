//go:build !linux

package memfile

import "errors"

var errLinux = errors.New("memory that other processes map needs Linux (memfd_create, pidfd_getfd)")

// Create makes n bytes of memory, of which others can map the first shared.
func Create(n, shared int) (*Memory, error) { return nil, errLinux }

// Open maps the memory of a handle.
func Open([]byte) (*Memory, error) { return nil, errLinux }

// Repeat returns n bytes of memory of the Go heap: this system has no memory that appears again and again.
func Repeat(n int) ([]byte, error) { return make([]byte, n), nil }

// Hide keeps the mapping alone.
func (m *Memory) Hide() {}

// Close ends the mapping.
func (m *Memory) Close() {}
