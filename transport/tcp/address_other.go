//go:build !linux

package tcp

import "os"

// identity returns the host's identity: there are no network namespaces.
func identity() hostID {
	name, _ := os.Hostname()
	return identify(guess(name))
}
