package hcakit

import "testing"

// A file of the software HCA calls the files only that stand before it in the README's table of layers.
func TestLayers(t *testing.T) {
	needHeaders(t)
	library.CheckLayers(t, 20)
}
