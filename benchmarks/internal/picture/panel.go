package picture

import (
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Panel is one plot. Its x axis is logarithmic; so is the y axis where the values are far apart.
type Panel struct {
	Title, X, Y   string
	Width, Height float64 // inches
	Keys          []int64 // ascending; of every curve
	Curves        []Curve // the first is drawn over the others
	Band          []Curve // none, or the two edges of an area
	Bars          bool    // there is one key at most: each curve is a bar with its name below it
	Ratios        bool    // to something: a line at 1, and the y axis is logarithmic however near the values are
}

// Curve is a value for each key.
type Curve struct {
	Name      string
	Style     int       // which colour and which points
	Values    []float64 // NaN: none
	Low, High []float64 // the ends of each value's whisker; nil: no whiskers
	Label     string    // of a bar, above it
}

// colours are those of Okabe and Ito, which the colour-blind can tell apart too.
var colours = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{86, 180, 233, 255}, {230, 159, 0, 255}, {90, 90, 90, 255}, {150, 130, 0, 255},
}

var shapes = []draw.GlyphDrawer{
	draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{},
	draw.RingGlyph{}, draw.BoxGlyph{}, draw.CrossGlyph{}, draw.PlusGlyph{},
}

var (
	faint = color.Gray{228}
	grey  = color.Gray{110}
	dark  = color.Gray{60}
)

const (
	fewEntries  = 4    // of a legend: among the curves, more are beside them
	entryHeight = 0.16 // of a legend, inches
	aroundArea  = 0.75 // what title, axis and margins take of a panel's height, inches
	barWidth    = 0.5 * vg.Inch
)

func (p Panel) width() vg.Length  { return vg.Length(p.Width) * vg.Inch }
func (p Panel) height() vg.Length { return vg.Length(p.Height) * vg.Inch }

// entries is how many a legend has; one curve alone needs none.
func (p Panel) entries() int {
	n := len(p.Curves) + len(p.Band)/2
	if p.Bars || n < 2 {
		return 0
	}
	return n
}

// plot is the plot without what is around it.
func (p Panel) plot() *plot.Plot {
	g := newPlot()
	g.Title.Text = p.Title
	if p.Bars {
		p.addBars(g)
		return g
	}
	grid := newGrid()
	g.Add(grid)
	p.addBand(g)
	p.addCurves(g)
	p.scaleX(g)
	p.scaleY(g)
	return g
}

func newPlot() *plot.Plot {
	plot.DefaultFont.Variant = "Sans"
	g := plot.New()
	g.Title.TextStyle.Font.Size, g.Title.Padding = vg.Points(12), vg.Points(7)
	for _, axis := range []*plot.Axis{&g.X, &g.Y} {
		axis.LineStyle.Color, axis.Tick.LineStyle.Color, axis.Tick.Label.Color = grey, grey, dark
		axis.Padding, axis.Tick.Label.Font.Size = 0, vg.Points(9)
	}
	g.Legend.TextStyle.Font.Size = vg.Points(9)
	g.Legend.Top, g.Legend.Left = true, true
	g.Legend.XOffs, g.Legend.YOffs, g.Legend.Padding = vg.Points(8), -vg.Points(4), vg.Points(2)
	return g
}

// styleOf is the style of a text of its own.
func styleOf(points float64, c color.Color) text.Style {
	style := plot.New().X.Tick.Label
	style.Font.Size, style.Color = vg.Points(points), c
	return style
}

func newGrid() *plotter.Grid {
	grid := plotter.NewGrid()
	for _, lines := range []*draw.LineStyle{&grid.Vertical, &grid.Horizontal} {
		lines.Color, lines.Dashes = faint, nil
	}
	return grid
}

// nameAxes writes what the axes show outside of a tile, below and at the left of the plot's area. A plot's own names
// would take room from a logarithmic axis as if they stood at its end.
func (p Panel) nameAxes(g *plot.Plot, tile draw.Canvas) {
	area := g.DataCanvas(tile)
	style := styleOf(10, color.Black)
	style.XAlign, style.YAlign = draw.XCenter, draw.YTop
	tile.FillText(style, vg.Point{X: area.Center().X, Y: tile.Min.Y - vg.Millimeter}, p.X)
	style.YAlign, style.Rotation = draw.YBottom, math.Pi/2
	tile.FillText(style, vg.Point{X: tile.Min.X - 1.5*vg.Millimeter, Y: area.Center().Y}, p.Y)
}

// legendBeside takes a long legend out of the plot and draws it at the right of a tile. It returns what is left.
func (p Panel) legendBeside(g *plot.Plot, tile draw.Canvas) draw.Canvas {
	if p.entries() <= fewEntries {
		return tile
	}
	legend := g.Legend
	legend.Left, legend.XOffs = false, 0
	g.Legend = plot.NewLegend()
	title := g.Title.TextStyle.Rectangle(g.Title.Text).Size().Y
	legend.Draw(draw.Crop(tile, 0, 0, 0, -title-3*vg.Millimeter))
	return draw.Crop(tile, 0, -legend.Rectangle(tile).Size().X-3*vg.Millimeter, 0, 0)
}

// addCurves draws the curves, the first one last.
func (p Panel) addCurves(g *plot.Plot) {
	named := make([]func(), len(p.Curves))
	for i, c := range slices.Backward(p.Curves) {
		points := p.points(c.Values)
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil || len(points) == 0 {
			continue // no value that can be shown, so that the legend does not name the curve either
		}
		style := c.Style % len(colours)
		line.Color, line.Width = colours[style], vg.Points(1.6)
		dots.Color, dots.Shape, dots.Radius = line.Color, shapes[style], vg.Points(2.2)
		g.Add(line)
		p.addWhiskers(g, c, line.Color)
		g.Add(dots)
		named[i] = func() { g.Legend.Add(c.Name, line, dots) }
	}
	for _, add := range named {
		if add != nil && p.entries() > 0 {
			add()
		}
	}
}

// whiskers are points with the distances to the ends of their whiskers.
type whiskers struct {
	plotter.XYs
	plotter.YErrors
}

func (p Panel) addWhiskers(g *plot.Plot, c Curve, of color.Color) {
	if c.Low == nil {
		return
	}
	var w whiskers
	for i, v := range c.Values {
		if p.Keys[i] > 0 && c.Low[i] <= v && v <= c.High[i] { // not NaN
			w.XYs = append(w.XYs, plotter.XY{X: float64(p.Keys[i]), Y: v})
			w.YErrors = append(w.YErrors, struct{ Low, High float64 }{v - c.Low[i], c.High[i] - v})
		}
	}
	if bars, err := plotter.NewYErrorBars(w); err == nil {
		bars.Color, bars.Width, bars.CapWidth = of, vg.Points(0.7), vg.Points(3.5)
		g.Add(bars)
	}
}

// addBand fills what lies between the two edges.
func (p Panel) addBand(g *plot.Plot) {
	if len(p.Band) != 2 {
		return
	}
	near, far := p.points(p.Band[0].Values), p.points(p.Band[1].Values)
	slices.Reverse(far)
	band, err := plotter.NewPolygon(append(near, far...))
	if err != nil {
		return
	}
	shade := colours[0]
	band.Color, band.LineStyle.Width = color.NRGBA{shade.R, shade.G, shade.B, 50}, 0
	g.Add(band)
	first, _, _ := strings.Cut(p.Band[0].Name, " ")
	second, _, _ := strings.Cut(p.Band[1].Name, " ")
	g.Legend.Add(first+" to "+second, band)
}

// addBars draws a bar for each curve from zero, its whisker, and its label above them.
func (p Panel) addBars(g *plot.Plot) {
	grid := newGrid()
	grid.Vertical.Color = nil
	g.Add(grid)
	var labels plotter.XYLabels
	var names []string
	top := 0.0
	for i, c := range p.Curves {
		value, end := 0.0, 0.0
		if len(c.Values) > 0 && !math.IsNaN(c.Values[0]) {
			value, end = c.Values[0], c.Values[0]
		}
		if bar, err := plotter.NewBarChart(plotter.Values{value}, barWidth); err == nil {
			bar.XMin, bar.Color, bar.LineStyle.Width = float64(i), colours[c.Style%len(colours)], 0
			g.Add(bar)
		}
		if c.Low != nil && c.Low[0] <= value && value <= c.High[0] {
			end = c.High[0]
			at := plotter.XYs{{X: float64(i), Y: value}}
			w := whiskers{at, plotter.YErrors{{Low: value - c.Low[0], High: end - value}}}
			if bars, err := plotter.NewYErrorBars(w); err == nil {
				bars.Width = vg.Points(0.8)
				g.Add(bars)
			}
		}
		labels.XYs = append(labels.XYs, plotter.XY{X: float64(i), Y: end})
		labels.Labels = append(labels.Labels, c.Label)
		names = append(names, c.Name)
		top = max(top, end)
	}
	addLabels(g, labels)
	g.NominalX(names...)
	g.X.Min, g.X.Max = -0.6, float64(len(names))-0.4
	g.Y.Min, g.Y.Max = 0, top*1.15
	if top == 0 {
		g.Y.Max = 1
	}
	g.Y.Tick.Marker = evenTicks{}
}

// addLabels writes each text above its point.
func addLabels(g *plot.Plot, at plotter.XYLabels) {
	labels, err := plotter.NewLabels(at)
	if err != nil {
		return // there is none
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i] = styleOf(9, color.Black)
		labels.TextStyle[i].XAlign, labels.TextStyle[i].YAlign = text.XCenter, text.YBottom
	}
	labels.Offset.Y = vg.Points(3)
	g.Add(labels)
}

// points are those of a curve. A key of zero has no place on a logarithmic axis.
func (p Panel) points(values []float64) (points plotter.XYs) {
	for i, y := range values {
		if p.Keys[i] > 0 && !math.IsNaN(y) && !math.IsInf(y, 0) {
			points = append(points, plotter.XY{X: float64(p.Keys[i]), Y: y})
		}
	}
	return points
}
