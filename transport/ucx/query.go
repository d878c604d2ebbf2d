//go:build ucx && linux && cgo

package ucx

// Query returns what libucp, of that path or the system's, says of itself and of this host.
func Query(path string) (Info, error) {
	if err := load(path); err != nil {
		return Info{}, err
	}
	i := Info{Path: libraryPath(), Version: libraryVersion()}
	text, err := contextText()
	if err != nil {
		return i, err
	}
	i.Resources = resources(text)
	return i, nil
}
