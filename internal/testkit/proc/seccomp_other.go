//go:build !linux

package proc

import "errors"

// ForbidReadv is for Linux, which alone has process_vm_readv.
func ForbidReadv() error { return errors.New("seccomp needs Linux") }

// ForbidWritev likewise.
func ForbidWritev() error { return errors.New("seccomp needs Linux") }
