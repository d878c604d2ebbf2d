// Package lint holds the customs of this house as tests: go test ./internal/lint. There is no tool to install, and a
// custom that is not kept fails with a sentence that says where and what to do.
//
// A rule is a function over the files of the checkout (rules_test.go, docs_test.go, rooms_test.go, prose_test.go). Each
// has a case in fail_test.go that shows it failing. deps_test.go, in the root, says which package may import which.
//
//	Owns:     the customs, as tests
//	May call: the standard library, internal/settings, git (to list the files; without it the folder is walked)
//	Never:    is imported; changes a file, but for the table of ARCHITECTURE.md with -rewrite
package lint
