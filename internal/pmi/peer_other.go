//go:build !linux

package pmi

// LauncherPID is not known on this system.
func (c *Client) LauncherPID() int { return 0 }
