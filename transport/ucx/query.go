//go:build ucx && linux && cgo

package ucx

import (
	"slices"
	"strings"
)

// Query returns what libucp, of that path or the system's, says of itself and of this host.
func Query(path string) (Info, error) {
	if err := load(path); err != nil {
		return Info{}, err
	}
	i := Info{Path: libraryPath(), Version: libraryVersion(), Tested: Tested}
	text, err := contextText()
	if err != nil {
		return i, err
	}
	for _, resource := range resources(text) {
		transport, device, _ := strings.Cut(resource, "/")
		if !slices.Contains(i.Transports, transport) {
			i.Transports = append(i.Transports, transport)
		}
		if !slices.Contains(i.Devices, device) {
			i.Devices = append(i.Devices, device)
		}
	}
	return i, nil
}
