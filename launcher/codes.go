package launcher

import "strings"

// Exit codes of gorun itself, as shells and timeout(1) have them.
const (
	CodeUsage       = 2
	CodeAgain       = 75 // of a pod that may be made again, as EX_TEMPFAIL of sysexits.h
	CodeTimeout     = 124
	CodeStalled     = 125
	CodeCannotStart = 126
	CodeNotFound    = 127
)

// oneLine makes a message of a rank fit for one line.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	if strings.HasSuffix(word, "s") {
		return word + "es"
	}
	return word + "s"
}
