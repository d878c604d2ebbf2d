//go:build !linux

package tcp

import "os"

// identity: where there are no network namespaces, the host.
func identity() hostID {
	name, _ := os.Hostname()
	return identify(guess(name))
}
