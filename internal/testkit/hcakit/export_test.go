package hcakit

import "testing"

func CompileCases(t *testing.T, program, path string) {
	t.Helper()
	library.CompileCases(t, program, path, "-libverbs")
}
