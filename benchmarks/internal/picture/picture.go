package picture

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gorun-mpi/mpi/benchmarks/harness"
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	pictureWidth  = 7.2 * vg.Inch
	pictureHeight = 4.5 * vg.Inch
	dotsPerInch   = 180
	fewCurves     = 2  // have their legend among them
	steep         = 10 // values that are further apart than this get a logarithmic axis
)

// colours are those of Okabe and Ito, which the colour-blind can tell apart too.
var colours = []color.RGBA{
	{0, 114, 178, 255}, {213, 94, 0, 255}, {0, 158, 115, 255}, {204, 121, 167, 255},
	{86, 180, 233, 255}, {230, 159, 0, 255}, {90, 90, 90, 255}, {150, 130, 0, 255},
}

var (
	faint = color.Gray{228}
	grey  = color.Gray{110}
)

// Draw writes a drawing to a file whose name ends in .svg or .png. The x axis is logarithmic; so is the y axis where
// the values are far apart.
func Draw(path string, d harness.Drawing) error {
	var content []byte
	var err error
	if strings.EqualFold(filepath.Ext(path), ".svg") {
		content, err = svg(d)
	} else {
		content, err = png(d)
	}
	if err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o666)
}

func svg(d harness.Drawing) ([]byte, error) {
	var b bytes.Buffer
	canvas := vgsvg.New(pictureWidth, pictureHeight)
	compose(d, draw.New(canvas))
	_, err := canvas.WriteTo(&b)
	// Who has not the font of the PNG shall not get one with serifs.
	const family = "Liberation Sans"
	return bytes.ReplaceAll(b.Bytes(), []byte(family), []byte(family+",Arial,Helvetica,sans-serif")), err
}

func png(d harness.Drawing) ([]byte, error) {
	var b bytes.Buffer
	canvas := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(pictureWidth, pictureHeight), vgimg.UseDPI(dotsPerInch))}
	compose(d, draw.New(canvas))
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

// compose draws the plot and, in small print below it, what it was measured on.
func compose(d harness.Drawing, whole draw.Canvas) {
	const margin, footer = 3 * vg.Millimeter, 5 * vg.Millimeter
	p := plotOf(d)
	corners := []vg.Point{{}, {X: pictureWidth}, {X: pictureWidth, Y: pictureHeight}, {Y: pictureHeight}}
	whole.FillPolygon(color.White, corners)
	right := margin + 2*vg.Millimeter
	if len(d.Curves) > fewCurves { // no room among them
		legend := p.Legend
		legend.Left, legend.XOffs = false, 0
		p.Legend = plot.NewLegend()
		right += legend.Rectangle(whole).Size().X + 3*vg.Millimeter
		legend.Draw(draw.Crop(whole, 0, -margin, 0, -p.Title.TextStyle.Rectangle(p.Title.Text).Size().Y-6*vg.Millimeter))
	}
	p.Draw(draw.Crop(whole, margin, -right, margin+footer, -margin))
	small := p.X.Tick.Label
	small.Font.Size, small.Color = vg.Points(7.5), grey
	small.XAlign, small.YAlign = draw.XLeft, draw.YBottom
	whole.FillText(small, vg.Point{X: margin, Y: margin}, d.Facts)
}

// plotOf is the plot without what is around it.
func plotOf(d harness.Drawing) *plot.Plot {
	plot.DefaultFont.Variant = "Sans"
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = d.Title, d.X, d.Y
	p.Title.TextStyle.Font.Size, p.Title.Padding = vg.Points(13), vg.Points(8)
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.LineStyle.Color, axis.Tick.LineStyle.Color, axis.Tick.Label.Color = grey, grey, color.Gray{60}
		axis.Label.Padding, axis.Padding = vg.Points(4), 0
		axis.Tick.Label.Font.Size, axis.Label.TextStyle.Font.Size = vg.Points(9), vg.Points(10)
	}
	p.Legend.TextStyle.Font.Size = vg.Points(9)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = faint, faint
	p.Add(grid)
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.XOffs, p.Legend.YOffs, p.Legend.Padding = vg.Points(8), -vg.Points(4), vg.Points(2)
	addBand(p, d)
	addCurves(p, d)
	scaleX(p, d.Keys)
	low, high := extremes(d)
	scaleY(p, low, high)
	return p
}

func addCurves(p *plot.Plot, d harness.Drawing) {
	for n, c := range d.Curves {
		line, dots, err := plotter.NewLinePoints(points(d.Keys, c))
		if err != nil {
			continue // nothing that such axes can show
		}
		line.Color, line.Width = colours[n%len(colours)], vg.Points(1.8)
		dots.Color, dots.Shape, dots.Radius = line.Color, draw.CircleGlyph{}, vg.Points(2.2)
		p.Add(line, dots)
		if len(d.Curves)+len(d.Band) > 1 {
			p.Legend.Add(c.Name, line, dots)
		}
	}
}

// addBand fills what lies between the two edges.
func addBand(p *plot.Plot, d harness.Drawing) {
	if len(d.Band) != 2 {
		return
	}
	near, far := points(d.Keys, d.Band[0]), points(d.Keys, d.Band[1])
	slices.Reverse(far)
	band, err := plotter.NewPolygon(append(near, far...))
	if err != nil {
		return
	}
	shade := colours[0]
	band.Color, band.LineStyle.Width = color.NRGBA{shade.R, shade.G, shade.B, 50}, 0
	p.Add(band)
	first, _, _ := strings.Cut(d.Band[0].Name, " ")
	second, _, _ := strings.Cut(d.Band[1].Name, " ")
	p.Legend.Add(first+" to "+second, band)
}

// points are those of a curve. A key of zero has no place on a logarithmic axis.
func points(keys []int64, c harness.Curve) (points plotter.XYs) {
	for i, y := range c.Values {
		if keys[i] > 0 && !math.IsNaN(y) && !math.IsInf(y, 0) {
			points = append(points, plotter.XY{X: float64(keys[i]), Y: y})
		}
	}
	return points
}

// extremes are the least and the greatest value that is drawn.
func extremes(d harness.Drawing) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, c := range slices.Concat(d.Curves, d.Band) {
		for _, xy := range points(d.Keys, c) {
			low, high = min(low, xy.Y), max(high, xy.Y)
		}
	}
	return low, high
}

// scaleX makes the x axis logarithmic, with a tick at every key and a label at every one, second or third.
func scaleX(p *plot.Plot, all []int64) {
	keys := slices.DeleteFunc(slices.Clone(all), func(k int64) bool { return k <= 0 })
	if len(keys) == 0 {
		p.X.Min, p.X.Max = 0, 1
		return
	}
	first, last := float64(keys[0]), float64(keys[len(keys)-1])
	p.X.Min, p.X.Max = first/1.2, last*1.2
	p.X.Scale = plot.LogScale{}
	step := (len(keys) + 11) / 12
	kilo := int64(1024)
	if len(keys) > 1 && keys[1] == 10*keys[0] {
		kilo = 1000
	}
	var ticks plot.ConstantTicks
	for i, k := range keys {
		tick := plot.Tick{Value: float64(k)}
		if i%step == 0 {
			tick.Label = withPrefix(k, kilo)
		}
		ticks = append(ticks, tick)
	}
	p.X.Tick.Marker = ticks
}

// withPrefix is 4096 as 4K, 4194304 as 4M.
func withPrefix(n, kilo int64) string {
	for _, unit := range []string{"", "K", "M", "G"} {
		if n < kilo || n%kilo != 0 || unit == "G" {
			return fmt.Sprintf("%d%s", n, unit)
		}
		n /= kilo
	}
	return ""
}

// scaleY makes the y axis logarithmic where the values are far apart, and begin at zero where they are not.
func scaleY(p *plot.Plot, low, high float64) {
	switch {
	case low > high: // no values
		p.Y.Min, p.Y.Max = 0, 1
	case low > 0 && high/low >= steep:
		p.Y.Min, p.Y.Max = low/1.25, high*1.6
		p.Y.Scale = plot.LogScale{}
		p.Y.Tick.Marker = decades{high/low < 300}
	default:
		p.Y.Min, p.Y.Max = min(0, low), max(high*1.15, low+1e-9)
	}
}

// decades are ticks at powers of ten, and at twice and five times of these if there is room.
type decades struct{ fine bool }

// Ticks implements plot.Ticker.
func (d decades) Ticks(low, high float64) (ticks []plot.Tick) {
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for m := 1; m < 10; m++ {
			v := float64(m) * math.Pow(10, e)
			if v < low || v > high {
				continue
			}
			tick := plot.Tick{Value: v}
			if m == 1 || d.fine && (m == 2 || m == 5) {
				tick.Label = fmt.Sprintf("%.*f", max(0, int(-e)), v)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}
