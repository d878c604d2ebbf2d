package main

import (
	"image"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/palette/moreland"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
)

const (
	pictureWidth  = 6.2 * vg.Inch
	pictureHeight = 5.4 * vg.Inch
	barWidth      = 0.75 * vg.Inch
	dotsPerInch   = 180
)

// writePicture draws the plate with isotherms and a colour bar. The colours are a black-body scale whose lightness
// grows evenly with the temperature, so that no edge is seen where there is none.
func writePicture(path string, plate []float64, cells int) error {
	scale := moreland.ExtendedBlackBody()
	scale.SetMin(0)
	scale.SetMax(1)
	picture, err := coloured(plate, cells, scale)
	if err != nil {
		return err
	}
	p := plot.New()
	p.Title.Text = "Temperature of the plate"
	p.X.Label.Text, p.Y.Label.Text = "x", "y"
	p.X.Padding, p.Y.Padding = 0, 0
	p.Add(plotter.NewImage(picture, 0, 0, 1, 1), isotherms(plate, cells))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1, 0, 1

	bar := plot.New()
	// The bar is as high as the plate: it has an x axis of the same size, which is not seen.
	bar.Title.Text, bar.X.Label.Text = " ", " "
	bar.X.LineStyle.Color, bar.X.Tick.LineStyle.Color, bar.X.Tick.Label.Color =
		color.Transparent, color.Transparent, color.Transparent
	bar.X.Tick.Marker = plot.ConstantTicks{{Value: 0.5, Label: "0"}}
	bar.Y.Padding, bar.X.Padding = 0, 0
	bar.Add(&plotter.ColorBar{ColorMap: scale, Vertical: true})

	canvas := vgimg.NewWith(vgimg.UseWH(pictureWidth, pictureHeight), vgimg.UseDPI(dotsPerInch))
	whole := draw.Crop(draw.New(canvas), vg.Millimeter, -vg.Millimeter, vg.Millimeter, -vg.Millimeter)
	p.Draw(draw.Crop(whole, 0, -barWidth-2*vg.Millimeter, 0, 0))
	bar.Draw(draw.Crop(whole, pictureWidth-barWidth, -4*vg.Millimeter, 0, 0))
	return save(path, canvas)
}

// coloured makes an image of one pixel per cell.
func coloured(plate []float64, cells int, scale palette.ColorMap) (image.Image, error) {
	img := image.NewRGBA(image.Rect(0, 0, cells, cells))
	for i, temperature := range plate {
		c, err := scale.At(min(max(temperature, 0), 1))
		if err != nil {
			return nil, err
		}
		img.Set(i%cells, cells-1-i/cells, c) // y grows upwards
	}
	return img, nil
}

// isotherms are thin lines of equal temperature. Every few cells are enough to draw them.
func isotherms(plate []float64, cells int) *plotter.Contour {
	stride := max(1, cells/200)
	temperatures := []float64{0.05, 0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85}
	lines := plotter.NewContour(grid{plate, cells, stride}, temperatures, oneColour{})
	lines.LineStyles = []draw.LineStyle{{Width: vg.Points(0.6)}}
	return lines
}

// oneColour is the palette of the isotherms.
type oneColour struct{}

func (oneColour) Colors() []color.Color {
	return []color.Color{color.NRGBA{255, 255, 255, 110}, color.NRGBA{255, 255, 255, 110}}
}

// grid shows every stride-th cell to the contour plotter.
type grid struct {
	plate  []float64
	cells  int
	stride int
}

func (g grid) Dims() (c, r int)   { return (g.cells-1)/g.stride + 1, (g.cells-1)/g.stride + 1 }
func (g grid) Z(c, r int) float64 { return g.plate[r*g.stride*g.cells+c*g.stride] }
func (g grid) X(c int) float64    { return (float64(c*g.stride) + 0.5) / float64(g.cells) }
func (g grid) Y(r int) float64    { return (float64(r*g.stride) + 0.5) / float64(g.cells) }

func save(path string, canvas *vgimg.Canvas) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = vgimg.PngCanvas{Canvas: canvas}.WriteTo(f)
	if closed := f.Close(); err == nil {
		err = closed
	}
	return err
}
