package procs

import (
	"bytes"
	"fmt"
	"os"
)

// IsStopped reports whether a process is stopped, by a signal or by a debugger.
func IsStopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state := bytes.TrimLeft(text[bytes.LastIndexByte(text, ')')+1:], " ") // the name of the process may have any character
	return len(state) > 0 && (state[0] == 'T' || state[0] == 't')
}
