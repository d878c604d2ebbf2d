//go:build !linux

package vswitch

import "errors"

// OpenTAP is Linux's.
func OpenTAP(string) (Port, error) { return nil, errors.ErrUnsupported }
