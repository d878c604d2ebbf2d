package main

import (
	"image"
	"image/color"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

// raster draws a picture as pixels.
func raster(r *result, m measurement) *vgimg.Canvas {
	rows := r.panels(m)
	width, height := vg.Length(0), vg.Length(0)
	for _, row := range rows {
		w, h := row.size()
		width, height = max(width, w), height+h
	}
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(130))
	r.drawOn(draw.New(canvas), rows, width, height)
	return canvas
}

func count(img image.Image, c color.Color) (n int) {
	want := color.RGBAModel.Convert(c)
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			if color.RGBAModel.Convert(img.At(x, y)) == want {
				n++
			}
		}
	}
	return n
}

// TestPictures: every library is seen in every kind of picture, one that failed is not, and the goal is seen beneath
// a curve of sizes. With GORUN_TEST_PICTURES=DIR the results of that folder are drawn there as PNG, to be looked at.
func TestPictures(t *testing.T) {
	for _, name := range []string{"latency", "ring", "mbw_mr", "match", "overlap", "tcp-latency", "tcp-rate", "rdma-latency", "rdma-bw"} {
		m, _ := find(plan(false), name)
		for _, mpichFails := range []bool{false, true} {
			r := invented(m)
			if mpichFails {
				for i := range r.Runs {
					r.Runs[i].Rounds[2], r.Runs[i].Failed[2] = nil, "did not end within 1s"
				}
			}
			img := raster(r, m).Image()
			for i, c := range colours[:len(m.lineup)] {
				seen := count(img, c) > 100
				if want := i != 2 || !mpichFails; seen != want {
					t.Errorf("%s: library %d is seen: %v, want %v", name, i, seen, want)
				}
			}
			if seen := count(img, goalLine) > 50; seen != m.sizes {
				t.Errorf("%s: the goal is seen: %v, want %v", name, seen, m.sizes)
			}
		}
	}
	if dir := os.Getenv("GORUN_TEST_PICTURES"); dir != "" {
		for _, m := range plan(false) {
			if r, err := readResult(dir, m.name); err == nil {
				savePNG(t, filepath.Join(dir, m.name+".png"), raster(r, m))
			}
		}
	}
}

func savePNG(t *testing.T, path string, c *vgimg.Canvas) {
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := (vgimg.PngCanvas{Canvas: c}).WriteTo(f); err != nil {
		t.Fatal(err)
	}
}

// A picture of nothing but failures is still a picture.
func TestPictureOfNothing(t *testing.T) {
	for _, m := range plan(false) {
		r := invented(m)
		for i := range r.Runs {
			clear(r.Runs[i].Rounds)
		}
		path := filepath.Join(t.TempDir(), "nothing.svg")
		if err := r.draw(m, path); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

func TestPictureIsAnSVG(t *testing.T) {
	m, _ := find(plan(false), "latency")
	path := filepath.Join(t.TempDir(), "latency.svg")
	if err := invented(m).draw(m, path); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<svg", ">gorun<", ">Open MPI<", ">MPICH<", ">asked; lower is better<", "Latency",
		"sans-serif", ">256 Ki<", "</svg>"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the picture has no %q", want)
		}
	}
}
