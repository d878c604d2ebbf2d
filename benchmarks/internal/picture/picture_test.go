package picture

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/color"
	stdpng "image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
)

// doubling is a drawing of sizes up to the last, one curve, without a band.
func doubling(last int64, value func(size float64) float64) harness.Drawing {
	d := harness.Drawing{Title: "Title", X: "sizes", Y: "MB/s", Facts: "a machine", Curves: []harness.Curve{{Name: "one"}}}
	for size := int64(1); size <= last; size *= 2 {
		d.Keys = append(d.Keys, size)
		d.Curves[0].Values = append(d.Curves[0].Values, value(float64(size)))
	}
	return d
}

func drawn(t *testing.T, file string, d harness.Drawing) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), file)
	if err := Draw(path, d); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// textOf is what a reader of an SVG reads, and how many lines he sees.
func textOf(t *testing.T, svg []byte) (text string, paths int) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return text, paths
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, svg)
		}
		switch e := token.(type) {
		case xml.CharData:
			text += " " + strings.TrimSpace(string(e))
		case xml.StartElement:
			if e.Name.Local == "path" {
				paths++
			}
		}
	}
}

func TestSVG(t *testing.T) {
	text, _ := textOf(t, drawn(t, "a.svg", doubling(4<<20, func(size float64) float64 { return 0.2 + size/1e4 })))
	for _, want := range []string{"Title", "sizes", "MB/s", "a machine", "1", "1K", "64K", "1M", "4M", "100"} {
		if !strings.Contains(text+" ", " "+want+" ") {
			t.Errorf("%q is not in %s", want, text)
		}
	}
	if strings.Contains(text, "one") || strings.Contains(text, "2M") {
		t.Errorf("one curve needs no legend, and 23 sizes no label each: %s", text)
	}
}

func TestBand(t *testing.T) {
	d := doubling(64, func(size float64) float64 { return size })
	plain, paths := textOf(t, drawn(t, "a.svg", d))
	high := doubling(64, func(size float64) float64 { return 300 * size })
	d.Band = []harness.Curve{{Name: "P50 Tail", Values: d.Curves[0].Values}, {Name: "P99 Tail", Values: high.Curves[0].Values}}
	banded, more := textOf(t, drawn(t, "a.svg", d))
	if strings.Contains(plain, "P50") || !strings.Contains(banded, "P50 to P99") || more <= paths {
		t.Errorf("with a band %d paths and %s; without %d and %s", more, banded, paths, plain)
	}
	if !strings.Contains(banded+" ", " 10000 ") {
		t.Errorf("the axis ends below the band: %s", banded)
	}
}

func TestPNG(t *testing.T) {
	picture, err := stdpng.Decode(bytes.NewReader(drawn(t, "a.PNG", doubling(1024, func(float64) float64 { return 2 }))))
	if err != nil {
		t.Fatal(err)
	}
	b := picture.Bounds()
	coloured := 0
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			if picture.At(x, y) == (color.RGBA{0, 114, 178, 255}) {
				coloured++
			}
		}
	}
	if b.Dx() < 800 || coloured < b.Dx() {
		t.Errorf("%v, %d pixels of the curve", b, coloured)
	}
}

// Odd results still make a picture.
func TestPictureOfLittle(t *testing.T) {
	curve := func(values ...float64) []harness.Curve { return []harness.Curve{{Name: "c", Values: values}} }
	for name, d := range map[string]harness.Drawing{
		"nothing":             {},
		"no line":             {Curves: curve()},
		"one line":            {Keys: []int64{8}, Curves: curve(3)},
		"only empty messages": {Keys: []int64{0}, Curves: curve(3)},
		"with empty":          {Keys: []int64{0, 1, 2}, Curves: curve(1, 2, 3)},
		"zeros":               {Keys: []int64{1, 2}, Curves: curve(0, 0)},
		"no numbers":          {Keys: []int64{1, 2}, Curves: curve(math.NaN(), math.Inf(1))},
		"below zero":          {Keys: []int64{1, 2}, Curves: curve(-1, 1)},
		"a band of nothing":   {Keys: []int64{0}, Curves: curve(3), Band: append(curve(1), curve(2)...)},
	} {
		t.Run(name, func(t *testing.T) { textOf(t, drawn(t, "a.svg", d)) })
	}
}

// More curves than fit among each other have their legend beside them.
func TestManyCurves(t *testing.T) {
	d := doubling(8, func(float64) float64 { return 1 })
	d.Keys = []int64{1, 10, 100, 1000}
	for _, name := range []string{"two", "three", "four"} {
		d.Curves = append(d.Curves, harness.Curve{Name: name, Values: d.Curves[0].Values})
	}
	text, _ := textOf(t, drawn(t, "a.svg", d))
	for _, want := range []string{"one", "two", "three", "four", "10", "100", "1K"} {
		if !strings.Contains(text+" ", " "+want+" ") {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

func TestUnwritable(t *testing.T) {
	if err := Draw(filepath.Join(t.TempDir(), "no", "a.svg"), doubling(2, math.Sqrt)); err == nil {
		t.Error("drawn where no folder is")
	}
}

func TestPrefixes(t *testing.T) {
	for n, want := range map[int64]string{1: "1", 512: "512", 1024: "1K", 1536: "1536", 65536: "64K", 1 << 20: "1M", 1 << 41: "2048G"} {
		if got := withPrefix(n, 1024); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
