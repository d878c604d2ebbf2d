//go:build !linux

package settings

// There is no shared memory without memfd and futex yet.
const defaultTransports = "tcp"
