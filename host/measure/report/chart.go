package report

import (
	"bytes"
	"fmt"
	"html"
	"html/template"
	"image/color"
	"math"
	"regexp"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Charts are drawn in colours that stand for variables of the page's style, which has them for light and for dark.
type ink uint8

const (
	inkText ink = iota + 1
	inkSoft
	inkGrid
	inkOne
	inkA
	inkSide // and those after it
)

// sideColours is how many colours there are for sides; then they begin anew.
const sideColours = 8

var variables = map[ink]string{inkText: "--ink", inkSoft: "--soft", inkGrid: "--grid", inkOne: "--one", inkA: "--a"}

func init() {
	for i := range sideColours {
		variables[inkSide+ink(i)] = fmt.Sprintf("--s%d", i)
	}
}

// side is the colour of a side: A has -1.
func side(i int) ink {
	if i < 0 {
		return inkA
	}
	return inkSide + ink(i%sideColours)
}

// class is that colour's class in the page.
func class(i int) string {
	if i < 0 {
		return "a"
	}
	return fmt.Sprintf("s%d", i%sideColours)
}

// colour is what the library is told: one that no chart has otherwise.
func (c ink) colour() color.Color { return color.NRGBA{1, 2, uint8(c), 255} }

// Sizes of charts, in the points of their own system; the page scales them.
const (
	chartWidth = 420
	fontSize   = 11
	rowHeight  = 19
	axisHeight = 40 // ticks and a label
)

// newPlot is an empty plot in the page's manner.
func newPlot(label string) *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	letters := font.Font{Typeface: "Liberation", Variant: "Sans", Size: fontSize}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.LineStyle.Color = inkOne.colour()
		a.LineStyle.Width = 0.75
		a.Tick.LineStyle.Color = inkOne.colour()
		a.Tick.LineStyle.Width = 0.75
		a.Tick.Length = 3
		a.Tick.Label.Font, a.Tick.Label.Color = letters, inkText.colour()
		a.Label.TextStyle.Font, a.Label.TextStyle.Color = letters, inkSoft.colour()
		a.Padding = 4
	}
	p.X.Label.Text = short(label, axisLabel)
	p.X.Tick.Label.Color = inkSoft.colour()
	return p
}

// rows makes the Y axis one of names, the first on top. At are their places, of rows numbered from below.
func rows(p *plot.Plot, at []float64, names []string, count int) {
	ticks := make(plot.ConstantTicks, len(at))
	for i := range at {
		ticks[i] = plot.Tick{Value: at[i], Label: short(names[i], marginLabel)}
	}
	p.Y.Tick.Marker = ticks
	p.Y.Tick.Length = 0
	p.Y.LineStyle.Width = 0
	p.Y.Min, p.Y.Max = -0.6, float64(count)-0.4
}

// downwards sets rows from the top, by their names, and is where they are.
func downwards(p *plot.Plot, count int, name func(i int) string) []float64 {
	places, names := make([]float64, count), make([]string, count)
	for i := range count {
		places[i], names[i] = float64(count-1-i), name(i)
	}
	rows(p, places, names, count)
	return places
}

// Characters of labels: in the margin of a chart, and below it.
const (
	marginLabel = 22
	axisLabel   = 40
)

// short cuts what is too long for a chart.
func short(s string, longest int) string {
	s = diagnostic.Printable(s)
	if r := []rune(s); len(r) > longest {
		return string(r[:longest-3]) + "..."
	}
	return s
}

// upright adds lines at the ticks of the X axis.
func upright(p *plot.Plot, at ...float64) {
	for _, x := range at {
		line, _ := plotter.NewLine(plotter.XYs{{X: x, Y: p.Y.Min}, {X: x, Y: p.Y.Max}})
		line.LineStyle = draw.LineStyle{Color: inkGrid.colour(), Width: 0.75}
		p.Add(line)
	}
}

// level adds a line across the plot.
func level(p *plot.Plot, y float64, c ink) {
	line, _ := plotter.NewLine(plotter.XYs{{X: p.X.Min, Y: y}, {X: p.X.Max, Y: y}})
	line.LineStyle = draw.LineStyle{Color: c.colour(), Width: 0.75}
	p.Add(line)
}

// ratios are ticks of a logarithmic axis of speed-ups.
func ratios(low, high float64) plot.ConstantTicks {
	steps := []float64{0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100}
	if high/low < 12 {
		steps = []float64{0.25, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8}
	}
	if high/low < 1.6 {
		steps = nil
		for i := -10; i <= 12; i++ {
			steps = append(steps, 1+float64(i)/20)
		}
	}
	if high/low < 1.15 {
		steps = nil
		for i := -8; i <= 8; i++ {
			steps = append(steps, 1+float64(i)/50)
		}
	}
	var ticks plot.ConstantTicks
	for _, x := range steps {
		if x >= low && x <= high {
			ticks = append(ticks, plot.Tick{Value: x, Label: strings.TrimRight(strings.TrimRight(fixed(x, 2), "0"), ".") + "×"})
		}
	}
	return ticks
}

// logarithmic are ticks on an axis of logarithms: the library's own puts its label as if it were linear.
func logarithmic(ticks plot.ConstantTicks) plot.ConstantTicks {
	for i := range ticks {
		ticks[i].Value = math.Log2(ticks[i].Value)
	}
	return ticks
}

// room is the range of speed-ups, with 1 in it.
func room(values []float64) (low, high float64) {
	low, high = 1, 1
	for _, v := range values {
		if v > 0 && !math.IsInf(v, 0) {
			low, high = min(low, v), max(high, v)
		}
	}
	margin := math.Pow(high/low, 0.06)
	margin = max(margin, 1.01)
	return low / margin, high * margin
}

// even are ticks of a linear axis from a low to a high value.
func even(low, high float64) plot.ConstantTicks {
	span := high - low
	step := math.Pow(10, math.Floor(math.Log10(span)))
	for _, f := range []float64{0.2, 0.5, 1, 2} {
		if span/(step*f) <= 6 {
			step *= f
			break
		}
	}
	digits := max(0, int(math.Ceil(-math.Log10(step)-1e-9)))
	var ticks plot.ConstantTicks
	for k := math.Ceil(low/step-1e-9) + 0; k*step <= high*(1+1e-9); k++ {
		ticks = append(ticks, plot.Tick{Value: k * step, Label: fixed(k*step+0, digits)})
	}
	return ticks
}

// decades are ticks of a logarithmic axis of times.
func decades(low, high float64) plot.ConstantTicks {
	steps := []float64{1, 2, 5}
	if high/low > 200 {
		steps = []float64{1}
	}
	var ticks plot.ConstantTicks
	for e := math.Floor(math.Log10(low)); e <= math.Log10(high); e++ {
		for _, f := range steps {
			if t := f * math.Pow(10, e); t >= low && t <= high {
				ticks = append(ticks, plot.Tick{Value: t, Label: fixed(t, max(0, -int(e)))})
			}
		}
	}
	return ticks
}

// at are the places of ticks.
func at(ticks plot.ConstantTicks) []float64 {
	var list []float64
	for _, t := range ticks {
		list = append(list, t.Value)
	}
	return list
}

// dots are points in a colour.
func dots(points plotter.XYs, c ink, radius vg.Length, filled bool) plot.Plotter {
	s, _ := plotter.NewScatter(points)
	s.GlyphStyle = draw.GlyphStyle{Color: c.colour(), Radius: radius, Shape: draw.CircleGlyph{}}
	if !filled {
		s.GlyphStyle.Shape = draw.RingGlyph{}
	}
	return s
}

var (
	prologue = regexp.MustCompile(`(?s)^.*?<svg[^>]*>`)
	family   = regexp.MustCompile(
		`font-family:Liberation Sans[^;"]*;font-variant:[a-z]+;font-weight:[a-z]+;font-style:[a-z]+;`)
	ours = regexp.MustCompile(`#0102([0-9A-F]{2})`)
)

// drawn is a plot as SVG for the page, with words that say what it shows.
func drawn(p *plot.Plot, height vg.Length, says string) (template.HTML, error) {
	c := vgsvg.New(chartWidth, height)
	p.Draw(draw.Crop(draw.New(c), 4, -8, 2, -4))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	text := prologue.ReplaceAllString(b.String(),
		fmt.Sprintf(`<svg viewBox="0 0 %d %.0f" role="img" aria-label="%s">`, chartWidth, height.Points(),
			html.EscapeString(diagnostic.Printable(says))))
	text = family.ReplaceAllString(text, "font-family:'Liberation Sans',Arial,Helvetica,sans-serif;")
	text = ours.ReplaceAllStringFunc(text, func(c string) string {
		var n ink
		fmt.Sscanf(c[5:], "%X", &n)
		return "var(" + variables[n] + ")"
	})
	return template.HTML(strings.ReplaceAll(text, "\n\t", " ")), nil
}
