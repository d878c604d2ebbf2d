//go:build linux && verbs && cgo

package settings

// Where there is no RDMA device the others are used.
const defaultTransports = "shm,verbs,tcp"
