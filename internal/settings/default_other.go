//go:build !linux

package settings

// Without memfd and futex there is only the transport within one process yet.
const defaultTransports = "loop"
