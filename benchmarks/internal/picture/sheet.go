package picture

import (
	"bytes"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Sheet is a picture: rows of panels from the top down, and a line of small print below them.
type Sheet struct {
	Rows  [][]Panel
	Facts string // what was measured on; empty: no line
}

const (
	margin      = 3 * vg.Millimeter // around each panel
	axisName    = 5 * vg.Millimeter // the room of what an axis shows
	footer      = 5 * vg.Millimeter // of the facts
	dotsPerInch = 180
)

// Draw writes the drawing of one benchmark to a file whose name ends in .svg or .png.
func Draw(path string, d harness.Drawing) error {
	p := Panel{Title: d.Title, X: d.X, Y: d.Y, Width: 7.2, Height: 4.3, Keys: d.Keys}
	for i, c := range d.Curves {
		p.Curves = append(p.Curves, Curve{Name: c.Name, Style: i, Values: c.Values})
	}
	for _, c := range d.Band {
		p.Band = append(p.Band, Curve{Name: c.Name, Values: c.Values})
	}
	return Sheet{[][]Panel{{p}}, d.Facts}.Write(path)
}

// Write draws the sheet to a file whose name ends in .svg or .png.
func (s Sheet) Write(path string) error {
	drawing := s.png
	if strings.EqualFold(filepath.Ext(path), ".svg") {
		drawing = s.svg
	}
	content, err := drawing()
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o666)
}

func (s Sheet) svg() ([]byte, error) {
	var b bytes.Buffer
	canvas := vgsvg.New(s.size())
	s.compose(draw.New(canvas))
	_, err := canvas.WriteTo(&b)
	// Where the font of the PNG is missing, another one without serifs takes its place.
	const family = "Liberation Sans"
	return bytes.ReplaceAll(b.Bytes(), []byte(family), []byte(family+",Arial,Helvetica,sans-serif")), err
}

func (s Sheet) png() ([]byte, error) {
	var b bytes.Buffer
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(s.size()), vgimg.UseDPI(dotsPerInch))}
	s.compose(draw.New(canvas))
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

func (s Sheet) size() (width, height vg.Length) {
	for _, row := range s.Rows {
		rowWidth, rowHeight := extent(row)
		width, height = max(width, rowWidth), height+rowHeight
	}
	if s.Facts != "" {
		height += footer
	}
	return width, height
}

// extent is the size of a row.
func extent(row []Panel) (width, height vg.Length) {
	for _, p := range row {
		width, height = width+p.width(), max(height, p.height())
	}
	return width, height
}

// compose draws the panels, and below them the facts.
func (s Sheet) compose(whole draw.Canvas) {
	width, height := s.size()
	whole.FillPolygon(color.White, []vg.Point{{}, {X: width}, {X: width, Y: height}, {Y: height}})
	plots := make([][]*plot.Plot, len(s.Rows))
	tiles := make([][]draw.Canvas, len(s.Rows))
	top := height
	for r, row := range s.Rows {
		_, rowHeight := extent(row)
		left := vg.Length(0)
		for _, p := range row {
			tile := draw.Crop(whole, left+margin+axisName, left+p.width()-width-margin,
				top-rowHeight+margin+axisName, top-height-margin)
			drawn := p.plot()
			tiles[r] = append(tiles[r], p.legendBeside(drawn, tile))
			plots[r] = append(plots[r], drawn)
			left += p.width()
		}
		top -= rowHeight
	}
	alignLeft(plots, tiles)
	for r, row := range s.Rows {
		for i, p := range row {
			plots[r][i].Draw(tiles[r][i])
			p.nameAxes(plots[r][i], tiles[r][i])
		}
	}
	small := styleOf(7.5, grey)
	small.XAlign, small.YAlign = draw.XLeft, draw.YBottom
	whole.FillText(small, vg.Point{X: margin, Y: margin}, s.Facts)
}

// alignLeft moves the left edges of tiles so that in each column the areas of the plots begin at one place. plot.Align
// would also give all rows the same height.
func alignLeft(plots [][]*plot.Plot, tiles [][]draw.Canvas) {
	begins := make([][]vg.Length, len(plots))
	var most []vg.Length // of each column
	for r, row := range plots {
		for i, p := range row {
			begins[r] = append(begins[r], p.DataCanvas(tiles[r][i]).Min.X-tiles[r][i].Min.X)
			if i == len(most) {
				most = append(most, 0)
			}
			most[i] = max(most[i], begins[r][i])
		}
	}
	for r, row := range tiles {
		for i := range row {
			row[i] = draw.Crop(row[i], most[i]-begins[r][i], 0, 0, 0)
		}
	}
}
