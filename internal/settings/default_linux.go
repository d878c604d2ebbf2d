//go:build !verbs || !cgo

package settings

const defaultTransports = "shm,tcp"
