package vet

import (
	"path/filepath"
	"strings"
)

// IsTool reports whether go vet has started this program as its tool: by the arguments that package
// golang.org/x/tools/go/analysis/unitchecker expects. No user types them: a program's argument may be a vet.cfg, and
// its name before that does not begin with a dash.
func IsTool(args []string) bool {
	if len(args) == 2 && (args[1] == "-V=full" || args[1] == "-flags") {
		return true
	}
	for _, flag := range args[1:max(1, len(args)-1)] {
		if !strings.HasPrefix(flag, "-") {
			return false
		}
	}
	last := args[len(args)-1]
	return len(args) > 1 && filepath.IsAbs(last) && filepath.Base(last) == "vet.cfg"
}
