package main

import (
	"bytes"
	"cmp"
	"image/color"
	"math"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The libraries' colours are told apart by everybody (Okabe and Ito), and so are their points.
var (
	colours = []color.Color{
		color.RGBA{0, 114, 178, 255}, color.RGBA{213, 94, 0, 255}, color.RGBA{0, 158, 115, 255},
		color.RGBA{230, 159, 0, 255},
	}
	points   = []draw.GlyphDrawer{draw.CircleGlyph{}, draw.SquareGlyph{}, draw.TriangleGlyph{}, draw.PyramidGlyph{}}
	faint    = color.Gray{225}
	plain    = color.Gray{120}
	goalLine = color.RGBA{204, 40, 90, 255}
)

const (
	panelWidth  = 6.6 * vg.Inch
	panelHeight = 3.9 * vg.Inch
	smallWidth  = 3.5 * vg.Inch
	smallHeight = 3.1 * vg.Inch
	ratioHeight = 2.1 * vg.Inch
)

// draw makes NAME.svg: a panel for each column, and beneath a curve of sizes the ratio to the best peer.
func (r *result) draw(m measurement, path string) error {
	rows := r.panels(m)
	width, height := vg.Length(0), vg.Length(0)
	for _, row := range rows {
		rowWidth, rowHeight := row.size()
		width, height = max(width, rowWidth), height+rowHeight
	}
	canvas := vgsvg.NewWith(vgsvg.UseWH(width, height))
	r.drawOn(draw.New(canvas), rows, width, height)
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return err
	}
	// Where the font that the picture was set in is missing, one that is about as wide.
	text := bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans"),
		[]byte("font-family:'Liberation Sans',Arial,Helvetica,sans-serif"))
	return os.WriteFile(path, text, 0o644)
}

// panel is a plot and the room it has.
type panel struct {
	plot          *plot.Plot
	width, height vg.Length
}

type panels []panel

func (row panels) size() (width, height vg.Length) {
	for _, p := range row {
		width, height = width+p.width, max(height, p.height)
	}
	return width, height
}

// panels lays out the picture in rows.
func (r *result) panels(m measurement) []panels {
	var shown []column
	for _, c := range m.columns {
		if !c.aside {
			shown = append(shown, c)
		}
	}
	if len(shown) == 1 {
		rows := []panels{{{r.panel(m, shown[0], true), panelWidth, panelHeight}}}
		rows[0][0].plot.Title.Text = m.title
		if m.sizes {
			rows = append(rows, panels{{r.ratioPanel(m, shown[0]), panelWidth, ratioHeight}})
		}
		return rows
	}
	across := 2
	if len(shown) > 4 {
		across = 4
	}
	var rows []panels
	for i, c := range shown {
		if i%across == 0 {
			rows = append(rows, nil)
		}
		p := r.panel(m, c, i == 0)
		p.Title.Text = c.name
		p.Y.Label.Text = c.unit
		last := &rows[len(rows)-1]
		*last = append(*last, panel{p, smallWidth, smallHeight})
	}
	return rows
}

// drawOn draws the rows from the top down, the plots' axes aligned.
func (r *result) drawOn(dc draw.Canvas, rows []panels, width, height vg.Length) {
	dc.FillPolygon(color.White, []vg.Point{{}, {X: width}, {X: width, Y: height}, {Y: height}})
	const margin = 2.5 * vg.Millimeter
	top := height
	if len(rows) == 2 && len(rows[0]) == 1 { // a curve and its ratio: one axis under the other
		_, upper := rows[0].size()
		split := height - upper
		tiles := [][]draw.Canvas{
			{draw.Crop(dc, margin, -margin, split, -margin)}, {draw.Crop(dc, margin, -margin, margin, -upper)},
		}
		plots := [][]*plot.Plot{{rows[0][0].plot}, {rows[1][0].plot}}
		left := alignLeft(plots, tiles)
		for i := range plots {
			plots[i][0].Draw(left[i])
		}
		return
	}
	for _, row := range rows {
		_, rowHeight := row.size()
		x := vg.Length(0)
		for _, p := range row {
			p.plot.Draw(draw.Crop(dc, x+margin, x+p.width-width-margin, top-rowHeight+margin, top-height-margin))
			x += p.width
		}
		top -= rowHeight
	}
}

// alignLeft moves the left edges so that the plots' areas begin at the same place; plot.Align would also give them
// the same height.
func alignLeft(plots [][]*plot.Plot, tiles [][]draw.Canvas) []draw.Canvas {
	var begin []vg.Length
	for i := range plots {
		begin = append(begin, plots[i][0].DataCanvas(tiles[i][0]).Min.X)
	}
	most := slices.Max(begin)
	var aligned []draw.Canvas
	for i := range plots {
		aligned = append(aligned, draw.Crop(tiles[i][0], most-begin[i], 0, 0, 0))
	}
	return aligned
}

func newPlot() *plot.Plot {
	p := plot.New()
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant = "Sans"
		style.Font.Size = vg.Points(9)
	}
	p.Title.TextStyle.Font.Size = vg.Points(11)
	p.Title.Padding = vg.Points(6)
	p.X.Padding, p.Y.Padding = 0, 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(2)
	p.Legend.XOffs, p.Legend.YOffs = vg.Points(8), -vg.Points(6)
	return p
}

// panel is one column: bars where there is one key, curves otherwise.
func (r *result) panel(m measurement, c column, legend bool) *plot.Plot {
	p := newPlot()
	p.Y.Label.Text = c.name
	if c.unit != "" {
		p.Y.Label.Text += ", " + c.unit
	}
	rows := r.rows(c)
	if len(rows) == 1 {
		r.bars(p, c, rows[0])
		return p
	}
	low, high := math.Inf(1), math.Inf(-1)
	p.Add(grid())
	for i := len(r.Library) - 1; i >= 0; i-- { // ours on top
		points := pointsOf(rows, i)
		if len(points.XYs) == 0 {
			continue
		}
		for j, at := range points.XYs {
			low, high = min(low, at.Y-points.YErrors[j].Low), max(high, at.Y+points.YErrors[j].High)
		}
		curve(p, i, points)
	}
	if legend {
		for i, name := range r.Library {
			p.Legend.Add(name, sample{i})
		}
	}
	p.X.Label.Text = m.key
	keyAxis(&p.X, r.keys(), m.sizes)
	if high > 0 {
		low, high = low/1.3, high*1.3
		if legend {
			high *= math.Pow(high/low, 0.18) // room for the legend
		}
		p.Y.Min, p.Y.Max = low, high
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, decades{}
	}
	return p
}

// medians are a library's points, with whiskers from the least to the greatest round.
type medians struct {
	plotter.XYs
	plotter.YErrors
}

func pointsOf(rows []row, library int) (m medians) {
	for _, row := range rows {
		s := row.libraries[library]
		if math.IsNaN(s.median) || s.low <= 0 {
			continue // nothing, or what a logarithm cannot show
		}
		m.XYs = append(m.XYs, plotter.XY{X: float64(row.key), Y: s.median})
		m.YErrors = append(m.YErrors, struct{ Low, High float64 }{s.median - s.low, s.high - s.median})
	}
	return m
}

func styles(library int) (draw.LineStyle, draw.GlyphStyle) {
	i := library % len(colours)
	line := draw.LineStyle{Color: colours[i], Width: vg.Points(1.1)}
	dot := draw.GlyphStyle{Color: colours[i], Shape: points[i], Radius: vg.Points(2.1)}
	if library == 0 {
		line.Width, dot.Radius = vg.Points(2), vg.Points(2.6)
	}
	return line, dot
}

// sample is a library's line in the legend, in the order of the libraries whatever is drawn first.
type sample struct{ library int }

func (s sample) Thumbnail(c *draw.Canvas) {
	line, dot := styles(s.library)
	c.StrokeLine2(line, c.Min.X, c.Center().Y, c.Max.X, c.Center().Y)
	c.DrawGlyph(dot, c.Center())
}

func curve(p *plot.Plot, library int, m medians) {
	line, dots, err := plotter.NewLinePoints(m.XYs)
	if err != nil {
		return // no number that could be drawn
	}
	line.LineStyle, dots.GlyphStyle = styles(library)
	p.Add(line)
	if whiskers, err := plotter.NewYErrorBars(m); err == nil {
		whiskers.Color = line.Color
		whiskers.Width, whiskers.CapWidth = vg.Points(0.7), vg.Points(3.5)
		p.Add(whiskers)
	}
	p.Add(dots)
}

// bars is a column with one key: one bar for each library, its number above it.
func (r *result) bars(p *plot.Plot, c column, row row) {
	var labels plotter.XYLabels
	p.Add(horizontals())
	for i, s := range row.libraries {
		said := number(s.median, c.digits)
		if math.IsNaN(s.median) {
			said = r.cell(i, row.key, s, c.digits)
			s.median, s.low, s.high = 0, 0, 0
		}
		bar, err := plotter.NewBarChart(plotter.Values{s.median}, vg.Points(38))
		if err != nil {
			continue
		}
		bar.XMin, bar.Color, bar.LineStyle.Width = float64(i), colours[i%len(colours)], 0
		p.Add(bar)
		at := plotter.XYs{{X: float64(i), Y: s.median}}
		apart := plotter.YErrors{{Low: s.median - s.low, High: s.high - s.median}}
		if w, err := plotter.NewYErrorBars(medians{at, apart}); err == nil && s.rounds > 1 {
			w.Width = vg.Points(0.8)
			p.Add(w)
		}
		labels.XYs = append(labels.XYs, plotter.XY{X: float64(i), Y: s.high})
		labels.Labels = append(labels.Labels, said)
		p.Y.Max = max(p.Y.Max, s.high)
	}
	if names, err := plotter.NewLabels(labels); err == nil {
		for i := range names.TextStyle {
			names.TextStyle[i].Font.Variant, names.TextStyle[i].Font.Size = "Sans", vg.Points(9)
			names.TextStyle[i].XAlign, names.TextStyle[i].YAlign = text.XCenter, text.YBottom
		}
		names.Offset.Y = vg.Points(3)
		p.Add(names)
	}
	p.NominalX(r.Library...)
	p.X.Min, p.X.Max = -0.6, float64(len(r.Library))-0.4
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.12
	if c.unit == "%" {
		p.Y.Max = 112
	} else if p.Y.Max <= 0 {
		p.Y.Max = 1
	}
	p.Y.Tick.Marker = evenTicks{}
}

// ratioPanel is ours / the best peer for each size, with what is asked of it; in the baseline's colour the same to that
// one, where something is asked.
func (r *result) ratioPanel(m measurement, c column) *plot.Plot {
	p := newPlot()
	p.Y.Label.Text = "ours / " + cmp.Or(m.rival, "best peer")
	p.X.Label.Text = m.key // short: plot makes room for it as if it stood at the right end
	keyAxis(&p.X, r.keys(), m.sizes)
	p.Add(grid())
	level := func(from, to, y float64, style draw.LineStyle, name string) {
		line, err := plotter.NewLine(plotter.XYs{{X: from, Y: y}, {X: to, Y: y}})
		if err != nil {
			return
		}
		line.LineStyle = style
		p.Add(line)
		if name != "" {
			p.Legend.Add(name, line)
		}
	}
	level(p.X.Min, p.X.Max, 1, draw.LineStyle{Color: plain, Width: vg.Points(1)}, "")
	most := 1.0
	_, limit := baselineIn(m.lineup)
	names := map[kind]string{toPeer: "asked; " + c.better(), toLimit: "asked beside " + limit.called}
	for _, g := range goals {
		name, drawn := names[g.kind]
		if g.measurement != r.Name || !drawn || !g.isFor(c.id) {
			continue
		}
		dashed := draw.LineStyle{Color: goalLine, Width: vg.Points(1.4)}
		if g.kind == toLimit {
			line, _ := styles(r.limitAt())
			dashed.Color = line.Color
		}
		dashed.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		level(max(float64(g.low), p.X.Min), min(float64(g.high), p.X.Max), g.bound, dashed, name)
		most, names[g.kind] = max(most, g.bound), "" // named once
	}
	ratios := func(library int, of func(row) float64) {
		var points plotter.XYs
		for _, row := range r.rows(c) {
			if v := of(row); !math.IsNaN(v) {
				points = append(points, plotter.XY{X: float64(row.key), Y: v})
				most = max(most, v)
			}
		}
		if len(points) > 0 {
			curve(p, library, medians{points, make(plotter.YErrors, len(points))})
		}
	}
	if r.limitAt() > 0 {
		p.Legend.Add("ours / "+limit.name, sample{r.limitAt()})
		ratios(r.limitAt(), func(w row) float64 {
			if _, verdict := r.judge(c, w, []kind{toLimit}); verdict == "" {
				return math.NaN() // it is not about what is far from any limit, and would press the rest flat
			}
			return w.toLimit(medianOf)
		})
	}
	ratios(0, func(w row) float64 { return ratio(w.against(c.higher, medianOf)) })
	p.Y.Min, p.Y.Max = 0, most*1.35 // the legend is above all lines
	p.Y.Tick.Marker = evenTicks{}
	p.Legend.Left = false
	p.Legend.XOffs = -vg.Points(8)
	return p
}

func grid() *plotter.Grid {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = faint, faint
	g.Vertical.Dashes, g.Horizontal.Dashes = nil, nil
	return g
}

func horizontals() *plotter.Grid {
	g := grid()
	g.Vertical.Width = 0
	g.Vertical.Color = nil
	return g
}

// keyAxis is logarithmic from the least to the greatest key. Sizes have a label at each power of eight, other keys
// have one each.
func keyAxis(x *plot.Axis, keys []int64, sizes bool) {
	if len(keys) < 2 || keys[0] <= 0 {
		return
	}
	x.Scale = plot.LogScale{}
	x.Min, x.Max = float64(keys[0])/1.25, float64(keys[len(keys)-1])*1.25
	var ticks plot.ConstantTicks
	for _, key := range keys {
		t := plot.Tick{Value: float64(key)}
		if !sizes {
			t.Label = siText(float64(key))
		} else if powerOfEight(key) || len(keys) < 10 {
			t.Label = byteText(key)
		}
		ticks = append(ticks, t)
	}
	x.Tick.Marker = ticks
}

func powerOfEight(n int64) bool {
	for n > 1 && n%8 == 0 {
		n /= 8
	}
	return n == 1
}

func byteText(n int64) string {
	switch {
	case n >= mib && n%mib == 0:
		return strconv.FormatInt(n/mib, 10) + " Mi"
	case n >= kib && n%kib == 0:
		return strconv.FormatInt(n/kib, 10) + " Ki"
	}
	return strconv.FormatInt(n, 10)
}

// siText is a number with k, M or G.
func siText(v float64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e9, " G"}, {1e6, " M"}, {1e3, " k"}} {
		if v >= unit.of {
			return strconv.FormatFloat(v/unit.of, 'g', 3, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// decades are the ticks of a logarithmic axis: labels at powers of ten, or at 1, 2 and 5 where there are few.
type decades struct{}

func (decades) Ticks(low, high float64) []plot.Tick {
	few, very := high/low < 200, high/low < 5
	var ticks []plot.Tick
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
		for _, n := range []float64{1, 2, 3, 4, 5, 6, 7, 8, 9} {
			t := plot.Tick{Value: n * math.Pow(10, e)}
			if t.Value < low || t.Value > high {
				continue
			}
			if n == 1 || few && (n == 2 || n == 5) || very {
				t.Label = siText(t.Value)
			}
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// evenTicks are those of a linear axis from zero: up to five, at round numbers.
type evenTicks struct{}

func (evenTicks) Ticks(_, high float64) []plot.Tick {
	step := math.Pow(10, math.Floor(math.Log10(high)))
	for _, n := range []float64{0.1, 0.2, 0.25, 0.5, 1, 2} {
		if high/(step*n) <= 5 {
			step *= n
			break
		}
	}
	var ticks []plot.Tick
	for i := 0; float64(i)*step <= high; i++ {
		ticks = append(ticks, plot.Tick{Value: float64(i) * step, Label: siText(float64(i) * step)})
	}
	return ticks
}
