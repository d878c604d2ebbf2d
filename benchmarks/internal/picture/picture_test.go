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
	d := harness.Drawing{Title: "Title", X: "sizes", Y: "MB/s", Facts: "a machine",
		Curves: []harness.Curve{{Name: "one"}}}
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

// textOf is the text of an SVG, and how many lines it has.
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
	d.Band = []harness.Curve{
		{Name: "P50 Tail", Values: d.Curves[0].Values}, {Name: "P99 Tail", Values: high.Curves[0].Values},
	}
	banded, more := textOf(t, drawn(t, "a.svg", d))
	if strings.Contains(plain, "P50") || !strings.Contains(banded, "P50 to P99") || more <= paths {
		t.Errorf("with a band %d paths and %s; without %d and %s", more, banded, paths, plain)
	}
	if !strings.Contains(banded+" ", " 10k ") {
		t.Errorf("the axis ends below the band: %s", banded)
	}
}

func TestPNG(t *testing.T) {
	content := drawn(t, "a.PNG", doubling(1024, func(float64) float64 { return 2 }))
	picture, err := stdpng.DecodeConfig(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if coloured := pixels(t, content)[colours[0]]; picture.Width < 800 || coloured < picture.Width {
		t.Errorf("%d pixels wide, %d pixels of the curve", picture.Width, coloured)
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

// written is a sheet's file.
func written(t *testing.T, file string, s Sheet) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), file)
	if err := s.Write(path); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// pixels counts those of each colour.
func pixels(t *testing.T, content []byte) map[color.RGBA]int {
	t.Helper()
	img, err := stdpng.Decode(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	counts := map[color.RGBA]int{}
	for y := img.Bounds().Min.Y; y < img.Bounds().Max.Y; y++ {
		for x := img.Bounds().Min.X; x < img.Bounds().Max.X; x++ {
			counts[color.RGBAModel.Convert(img.At(x, y)).(color.RGBA)]++
		}
	}
	return counts
}

// libraries is a panel of a curve in every style, over some keys.
func libraries(keys ...int64) Panel {
	p := Panel{Title: "Title", X: "keys", Y: "µs", Width: 6, Height: 4, Keys: keys}
	for style := range colours {
		c := Curve{Name: "of style " + string(rune('A'+style)), Style: style}
		for i := range keys {
			v := float64((style + 1) * (i + 1))
			c.Values, c.Low, c.High = append(c.Values, v), append(c.Low, v/2), append(c.High, 2*v)
		}
		p.Curves = append(p.Curves, c)
	}
	return p
}

// Every style is seen, as a curve and as a bar, and a curve without values is not.
func TestStyles(t *testing.T) {
	for _, keys := range [][]int64{{1, 2, 4}, {8}} {
		p := libraries(keys...)
		p.Bars = len(keys) == 1
		for i := range p.Curves[3].Values {
			p.Curves[3].Values[i], p.Curves[3].Low[i], p.Curves[3].High[i] = math.NaN(), math.NaN(), math.NaN()
		}
		counts := pixels(t, written(t, "a.png", Sheet{Rows: [][]Panel{{p}}}))
		for i, c := range colours {
			if seen := counts[c] > 50; seen != (i != 3) {
				t.Errorf("%d keys: style %d is seen: %v", len(keys), i, seen)
			}
		}
	}
}

// A whisker is as long as the rounds are apart, and an axis has room for it.
func TestWhiskers(t *testing.T) {
	p := libraries(1, 2, 4)
	p.Curves = p.Curves[:1]
	plain, whiskered := p, p
	plain.Curves = []Curve{{Name: "one", Values: p.Curves[0].Values}}
	p.Curves[0].High[2] = 5000
	_, few := textOf(t, written(t, "a.svg", Sheet{Rows: [][]Panel{{plain}}}))
	text, more := textOf(t, written(t, "a.svg", Sheet{Rows: [][]Panel{{whiskered}}}))
	if more < few+3*3 {
		t.Errorf("%d lines with whiskers at three points, %d without", more, few)
	}
	if !strings.Contains(text+" ", " 1k ") {
		t.Errorf("the axis ends below the whisker: %s", text)
	}
}

// A bar has its name below it and its label above it, a failure too.
func TestBars(t *testing.T) {
	p := Panel{X: "2 ranks", Keys: []int64{2}, Width: 4, Height: 3, Bars: true, Curves: []Curve{
		{Name: "ours", Values: []float64{2e6}, Label: "two"},
		{Name: "theirs", Style: 1, Values: []float64{math.NaN()}, Label: "failed"},
	}}
	text, _ := textOf(t, written(t, "a.svg", Sheet{Rows: [][]Panel{{p}}}))
	for _, want := range []string{"ours", "theirs", "two", "failed", "2 ranks", "1M"} {
		if strings.Count(text+" ", " "+want+" ") != 1 {
			t.Errorf("%q is not once in %s", want, text)
		}
	}
}

// Ratios have a logarithmic axis with 1 on it, however near they are to each other.
func TestRatios(t *testing.T) {
	p := Panel{Keys: []int64{1, 2}, Width: 4, Height: 3, Ratios: true, Curves: []Curve{{Values: []float64{0.6, 0.7}}}}
	text, _ := textOf(t, written(t, "a.svg", Sheet{Rows: [][]Panel{{p}}}))
	for _, want := range []string{"0.6", "0.7", "0.8", "0.9", "1"} {
		if !strings.Contains(text+" ", " "+want+" ") {
			t.Errorf("%q is not in %s", want, text)
		}
	}
}

// Rows stand below each other, panels of a row beside each other, and the facts below all.
func TestSheetHasRoomForItsPanels(t *testing.T) {
	wide, small := libraries(1, 2), libraries(1, 2)
	small.Width, small.Height = 2, 3
	s := Sheet{Rows: [][]Panel{{small, small}, {wide}}}
	picture, err := stdpng.DecodeConfig(bytes.NewReader(written(t, "a.png", s)))
	if err != nil {
		t.Fatal(err)
	}
	if picture.Width != 6*dotsPerInch || picture.Height != 7*dotsPerInch {
		t.Errorf("%d × %d pixels, want %d × %d", picture.Width, picture.Height, 6*dotsPerInch, 7*dotsPerInch)
	}
	s.Facts = "measured somewhere"
	if _, taller := s.size(); taller <= 7*72 {
		t.Errorf("%v points, with a line of facts", taller)
	}
	text, _ := textOf(t, written(t, "a.svg", s))
	if strings.Count(text, "Title") != 3 || strings.Count(text, "of style A") != 3 || !strings.Contains(text, s.Facts) {
		t.Errorf("three panels with a legend each, and the facts; got %s", text)
	}
}

func TestUnwritable(t *testing.T) {
	if err := Draw(filepath.Join(t.TempDir(), "no", "a.svg"), doubling(2, math.Sqrt)); err == nil {
		t.Error("drawn where no folder is")
	}
}

func TestPrefixes(t *testing.T) {
	for n, want := range map[int64]string{
		1: "1", 512: "512", 1024: "1K", 1536: "1536", 65536: "64K", 1 << 20: "1M", 1 << 41: "2048G",
	} {
		if got := withPrefix(n, 1024); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
