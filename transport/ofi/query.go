//go:build ofi && linux && cgo

package ofi

import "slices"

// Query returns what libfabric, of that path or the system's, says of itself and of this host.
func Query(path string) (Info, error) {
	if err := load(path); err != nil {
		return Info{}, err
	}
	i := Info{Path: libraryPath(), Version: libraryVersion(), Tested: Tested}
	all, err := list("")
	if err != nil {
		return i, err
	}
	for _, x := range all {
		if !slices.Contains(i.Providers, x[0]) {
			i.Providers = append(i.Providers, x[0])
		}
		if x[0] == all[0][0] && !slices.Contains(i.Domains, x[1]) {
			i.Domains = append(i.Domains, x[1])
		}
	}
	return i, nil
}
