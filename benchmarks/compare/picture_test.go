package main

import (
	"image"
	"image/color"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

// raster draws a result as pixels, into a file that stays.
func raster(t *testing.T, r *result, m measurement, path string) image.Image {
	t.Helper()
	if err := (picture.Sheet{Rows: r.panels(m)}).Write(path); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// pixels counts those of each colour.
func pixels(img image.Image) map[color.RGBA]int {
	counts := map[color.RGBA]int{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			counts[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	return counts
}

// colours are those that package picture gives to the libraries, in their order.
var colours = []color.RGBA{{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255}}

// TestPictures checks that every library is seen in every kind of picture, and one that failed is not.
func TestPictures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.png")
	names := []string{"tcp-rate", "latency", "ring", "mbw_mr", "match", "overlap", "tcp-latency", "rdma-latency",
		"rdma-bw", "halo"}
	if testing.Short() { // all of them take seconds
		names = names[:1]
	}
	for _, name := range names {
		m, _ := find(plan(false, 0), name)
		for _, mpichFails := range []bool{false, true} {
			r := invented(m)
			if mpichFails {
				for i := range r.Runs {
					r.Runs[i].Rounds[2], r.Runs[i].Failed[2] = nil, "did not end within 1s"
				}
			}
			counts := pixels(raster(t, r, m, path))
			for i, c := range colours[:len(m.libraries)] {
				seen := counts[c] > 200
				if want := i != 2 || !mpichFails; seen != want {
					t.Errorf("%s: library %d is seen: %v, want %v", name, i, seen, want)
				}
			}
		}
	}
}

// A picture of nothing but failures is still a picture.
func TestPictureOfNothing(t *testing.T) {
	for _, m := range plan(false, 0) {
		r := invented(m)
		for i := range r.Runs {
			clear(r.Runs[i].Rounds)
		}
		if err := r.draw(m, t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// svg is the picture of invented results.
func svg(t *testing.T, name string) string {
	t.Helper()
	m, _ := find(plan(false, 0), name)
	dir := t.TempDir()
	if err := invented(m).draw(m, dir); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, name+".svg"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A curve of sizes has the ratios beneath it; where one is to the limit, a legend tells the two apart.
func TestPictureIsAnSVG(t *testing.T) {
	text := svg(t, "latency")
	for _, want := range []string{"<svg", ">gorun<", ">Open MPI<", ">MPICH<", ">ours / best peer<", "Latency",
		"sans-serif", ">256K<", "</svg>"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture has no %q", want)
		}
	}
	text = svg(t, "tcp-latency")
	for _, want := range []string{">bare socket<", ">ours / best peer<", ">ours / bare socket<", ">ratio<"} {
		if !strings.Contains(text, want) {
			t.Errorf("the picture with a limit has no %q", want)
		}
	}
	for _, name := range []string{"mbw_mr", "match"} {
		if text := svg(t, name); strings.Contains(text, "ours / ") {
			t.Errorf("%s: ratios, where no sizes are measured", name)
		}
	}
}
