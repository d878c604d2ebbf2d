package main

import (
	"fmt"
	"io"
	"strings"
)

// askUCX asks libucp: its version and path, and what it can use here; nil in a binary that was built without it.
var askUCX func() ([]string, error)

// printUCX prints what libucp says.
func printUCX(w io.Writer, ask func() ([]string, error), cols int) {
	const title = 18
	text := []string{"built without UCX (go build -tags ucx)"}
	if ask != nil {
		var err error
		if text, err = ask(); err != nil {
			text = []string{"none; " + err.Error()}
		}
	}
	for i, line := range text {
		name := "UCX"
		if i > 0 {
			name = ""
		}
		fmt.Fprintf(w, "%-*s%s\n", title, name,
			strings.TrimLeft(wrap(line, max(cols-title, 30), strings.Repeat(" ", title)), " "))
	}
	fmt.Fprintln(w)
}
