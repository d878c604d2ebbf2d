package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
)

// withPauses is src with a call before each statement, numbered from first on, and how many these are. Every statement
// stays on its line, so that what the go command reports can be found.
func withPauses(name string, src []byte, library string, first int) ([]byte, int, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
	if err != nil {
		return nil, 0, err
	}
	if mayNotCall(f) {
		return src, 0, nil
	}
	offset := func(p token.Pos) int { return fset.Position(p).Offset }
	var at []int
	ast.Inspect(f, func(n ast.Node) bool {
		for _, s := range statements(n) {
			at = append(at, offset(s.Pos()))
		}
		return true
	})
	slices.Sort(at)
	end := offset(f.Name.End())
	var out bytes.Buffer
	out.Write(src[:end])
	if len(at) > 0 {
		fmt.Fprintf(&out, "; import pauses %q", library)
	}
	for i, a := range at {
		out.Write(src[end:a])
		fmt.Fprintf(&out, "pauses.Here(%d); ", first+i)
		end = a
	}
	out.Write(src[end:])
	return out.Bytes(), len(at), nil
}

// statements are those directly in n before which a call can stand.
func statements(n ast.Node) []ast.Stmt {
	var list []ast.Stmt
	switch n := n.(type) {
	case *ast.BlockStmt:
		list = n.List
	case *ast.CaseClause:
		list = n.Body
	case *ast.CommClause:
		list = n.Body
	}
	var found []ast.Stmt
	for _, s := range list {
		switch s.(type) {
		case *ast.EmptyStmt, *ast.CaseClause, *ast.CommClause: // the clauses of a switch are its block's list
		default:
			found = append(found, s)
		}
	}
	return found
}

// mayNotCall reports whether a function of the file runs where another may not be called.
func mayNotCall(f *ast.File) bool {
	for _, group := range f.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, "//go:nosplit") {
				return true
			}
		}
	}
	return false
}

const (
	pausesAt = "internal/pauses" // a package that is nowhere but in the overlay
	rareVar  = "GORUN_TEST_PAUSES"
)

// library is that package, but for the number of places and the variable's name. Its sleep is the kernel's, of which
// testing/synctest knows nothing: nothing happens in a bubble's time meanwhile.
const library = `package pauses

import (
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"
)

var passed [%d]atomic.Uint32

var rare = func() uint32 {
	n, _ := strconv.ParseUint(os.Getenv(%q), 10, 32)
	return uint32(n)
}()

// often: a place that has been passed so many times is part of a computation, which the counting alone would hold up.
const often = 1 << 14

func Here(place int) {
	if rare == 0 || passed[place].Load() > often {
		return
	}
	if before := passed[place].Add(1) - 1; rand.Uint32N(rare+before) != 0 {
		return
	}
	longest := 3 * time.Millisecond
	switch r := rand.IntN(100); {
	case r < 3:
		longest = 1500 * time.Millisecond
	case r < 30:
		longest = 40 * time.Millisecond
	}
	t := syscall.NsecToTimespec(int64(longest)/2 + rand.Int64N(int64(longest)/2))
	syscall.Nanosleep(&t, nil)
}
`
