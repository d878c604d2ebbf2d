package main

import (
	"cmp"
	"math"
	"path/filepath"
	"slices"

	"github.com/gorun-mpi/mpi/benchmarks/internal/picture"
)

// draw makes NAME.svg, with what it was measured on in small print.
func (r *result) draw(m measurement, dir string) error {
	return picture.Sheet{Rows: r.panels(m), Facts: r.Machine.brief()}.Write(filepath.Join(dir, r.Name+".svg"))
}

// panels lays out a panel for each column, and beneath a curve of sizes the ratios to the others.
func (r *result) panels(m measurement) (rows [][]picture.Panel) {
	var shown []column
	for _, c := range m.columns {
		if !c.aside {
			shown = append(shown, c)
		}
	}
	if m.labelled() {
		return r.labelledPanels(m, shown)
	}
	if len(shown) == 1 {
		p := r.panel(m, shown[0])
		p.Title, p.Width, p.Height = m.title, 6.6, 3.9
		rows = append(rows, []picture.Panel{p})
		if m.sizes {
			rows = append(rows, []picture.Panel{r.ratioPanel(m, shown[0])})
		}
		return rows
	}
	across := 2
	if len(shown) > 4 {
		across = 4
	}
	for i, c := range shown {
		if i%across == 0 {
			rows = append(rows, nil)
		}
		p := r.panel(m, c)
		p.Title, p.Y, p.Width, p.Height = c.name, c.unit, 3.5, 3.1
		last := len(rows) - 1
		rows[last] = append(rows[last], p)
	}
	return rows
}

// labelled reports whether keys are only names, and have no order.
func (m measurement) labelled() bool {
	return slices.ContainsFunc(m.runs, func(a arguments) bool { return a.label != "" })
}

// labelledPanels lays out bars for each key and column.
func (r *result) labelledPanels(m measurement, shown []column) (rows [][]picture.Panel) {
	const across = 4
	for _, key := range r.keys() {
		var panels []picture.Panel
		for _, c := range shown {
			all := slices.DeleteFunc(r.rows(c), func(w row) bool { return w.key != key })
			p := r.panelOf(m, c, []int64{key}, all)
			p.Title, p.Y, p.Width, p.Height = c.name, c.unit, 3.5, 2.6
			panels = append(panels, p)
		}
		rows = slices.AppendSeq(rows, slices.Chunk(panels, across))
	}
	return rows
}

// panel is one column: bars where there is one key, curves otherwise.
func (r *result) panel(m measurement, c column) picture.Panel {
	return r.panelOf(m, c, r.keys(), r.rows(c))
}

func (r *result) panelOf(m measurement, c column, keys []int64, rows []row) picture.Panel {
	p := picture.Panel{X: m.key, Y: c.name, Keys: keys}
	if c.unit != "" {
		p.Y += ", " + c.unit
	}
	if p.Bars = len(rows) == 1; p.Bars {
		p.X = m.keyText(rows[0].key) + " " + m.key
	}
	for i, name := range r.Library {
		curve := picture.Curve{Name: name, Style: i}
		for _, row := range rows {
			s := row.libraries[i]
			curve.Values = append(curve.Values, s.median)
			curve.Low, curve.High = append(curve.Low, s.low), append(curve.High, s.high)
			curve.Label = number(s.median, c.digits)
			if math.IsNaN(s.median) {
				curve.Label = r.cell(i, row.key, s, c.digits)
			}
		}
		p.Curves = append(p.Curves, curve)
	}
	return p
}

// ratioPanel is ours / the best peer for each key, and ours / the baseline in the baseline's colour.
func (r *result) ratioPanel(m measurement, c column) picture.Panel {
	p := picture.Panel{X: m.key, Y: "ratio", Keys: r.keys(), Width: 6.6, Height: 2.1, Ratios: true}
	peer := picture.Curve{Name: "ours / " + cmp.Or(m.rival, "best peer")}
	baseline := picture.Curve{Style: r.baselineAt()}
	for _, row := range r.rows(c) {
		peer.Values = append(peer.Values, row.peer)
		baseline.Values = append(baseline.Values, row.base)
	}
	p.Curves = append(p.Curves, peer)
	if at, b := baselineIn(r.Library); at > 0 {
		baseline.Name = "ours / " + b.name
		p.Curves = append(p.Curves, baseline)
	} else {
		p.Y = peer.Name
	}
	return p
}
