// Package lint holds the customs of this project as tests: go test ./internal/lint. There is no tool to install. A
// broken custom fails with a sentence that says where it is broken and how to mend it.
//
// A rule is a function over the files of the checkout (rules_test.go, docs_test.go, rooms_test.go, prose_test.go).
// fail_test.go has a case for each rule that shows it failing. deps_test.go, in the root, says which package may import
// which.
//
//	Owns:     the customs, as tests
//	May call: the standard library, internal/settings, git (to list the files; without it the rules walk the folder)
//	Never:    be imported; change a file, except the table of ARCHITECTURE.md with -rewrite
package lint
