package picture

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

const steep = 10 // values that are further apart than this have a logarithmic axis

const labelsPerInch = 1.9 // of a panel's width: labels of the x axis that do not touch each other

// scaleX makes the x axis logarithmic, with a tick at every key and labels at as many as have room.
func (p Panel) scaleX(g *plot.Plot) {
	keys := slices.DeleteFunc(slices.Clone(p.Keys), func(k int64) bool { return k <= 0 })
	if len(keys) == 0 {
		g.X.Min, g.X.Max = 0, 1
		return
	}
	first, last := float64(keys[0]), float64(keys[len(keys)-1])
	g.X.Min, g.X.Max = first/1.2, last*1.2
	g.X.Scale = plot.LogScale{}
	labels := max(1, int(p.Width*labelsPerInch))
	step := (len(keys) + labels - 1) / labels
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
	g.X.Tick.Marker = ticks
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

// scaleY makes the y axis logarithmic where the values are far apart, and begin at zero where they are not. A legend
// among the curves has room above them.
func (p Panel) scaleY(g *plot.Plot) {
	low, high := p.extremes()
	if p.Ratios {
		low, high = min(low, 1), max(high, 1)
		p.addLine(g, 1)
	}
	room := 0.05
	if n := p.entries(); n <= fewEntries {
		room += float64(n) * entryHeight / (p.Height - aroundArea)
	}
	switch {
	case low > high: // no values
		g.Y.Min, g.Y.Max = 0, 1
	case low > 0 && (p.Ratios || high/low >= steep):
		low /= 1.2
		g.Y.Min, g.Y.Max = low, low*math.Pow(high/low, 1/(1-room))
		g.Y.Scale = plot.LogScale{}
		g.Y.Tick.Marker = decades{}
	default:
		low = min(0, low)
		g.Y.Min, g.Y.Max = low, max(low+(high-low)/(1-room), low+1e-9)
		g.Y.Tick.Marker = evenTicks{}
	}
}

// extremes are the least and the greatest value that is drawn, the whiskers included.
func (p Panel) extremes() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, c := range slices.Concat(p.Curves, p.Band) {
		for _, values := range [][]float64{c.Values, c.Low, c.High} {
			for _, at := range p.points(values) {
				low, high = min(low, at.Y), max(high, at.Y)
			}
		}
	}
	return low, high
}

// addLine draws a level line from one end of the x axis to the other.
func (p Panel) addLine(g *plot.Plot, y float64) {
	line, err := plotter.NewLine(plotter.XYs{{X: g.X.Min, Y: y}, {X: g.X.Max, Y: y}})
	if err == nil {
		line.Color, line.Width = color.Gray{120}, vg.Points(1)
		g.Add(line)
	}
}

// decades are the ticks of a logarithmic axis: labels at powers of ten, at 1, 2 and 5 where these are few, and at all
// ticks where the axis is short.
type decades struct{}

// Ticks implements plot.Ticker.
func (decades) Ticks(low, high float64) (ticks []plot.Tick) {
	few, very := high/low < 200, high/low < 5
	for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
		for n := 1.0; n < 10; n++ {
			tick := plot.Tick{Value: n * math.Pow(10, e)}
			if tick.Value < low || tick.Value > high {
				continue
			}
			if n == 1 || few && (n == 2 || n == 5) || very {
				tick.Label = siText(tick.Value)
			}
			ticks = append(ticks, tick)
		}
	}
	return ticks
}

// evenTicks are those of a linear axis: up to six, at round numbers.
type evenTicks struct{}

// Ticks implements plot.Ticker.
func (evenTicks) Ticks(low, high float64) (ticks []plot.Tick) {
	step := math.Pow(10, math.Floor(math.Log10(high-low)))
	for _, n := range []float64{0.2, 0.25, 0.5, 1, 2} {
		if (high-low)/(step*n) <= 5 {
			step *= n
			break
		}
	}
	for i := math.Ceil(low / step); i*step <= high; i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: siText(i * step)})
	}
	return ticks
}

// siText is a number with k, M or G.
func siText(v float64) string {
	for _, unit := range []struct {
		of   float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= unit.of {
			return strconv.FormatFloat(v/unit.of, 'g', 3, 64) + unit.name
		}
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
