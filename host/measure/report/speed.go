package report

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/opgraft/graft/host/measure/statistics"
)

// ratio is a row of a chart of speed-ups.
type ratio struct {
	group string // rows of one group stand together under its name
	side  int
	s     statistics.Speedup
}

// errorBars are speed-ups with their intervals, along the X axis or the Y axis.
type errorBars struct {
	plotter.XYs
	low, high []float64
}

func (e errorBars) XError(i int) (float64, float64) { return e.low[i], e.high[i] }
func (e errorBars) YError(i int) (float64, float64) { return e.low[i], e.high[i] }

// drawable says whether a logarithmic axis has a place for a speed-up.
func drawable(s statistics.Speedup) bool {
	for _, x := range []float64{s.Median, s.CI95[0], s.CI95[1]} {
		if !(x > 0) || math.IsInf(x, 0) {
			return false
		}
	}
	return true
}

// bounded is a speed-up on a logarithmic axis, with how far its interval goes down and up.
func bounded(s statistics.Speedup) (middle, down, up float64) {
	middle = math.Log2(s.Median)
	return middle, middle - math.Log2(s.CI95[0]), math.Log2(s.CI95[1]) - middle
}

// forest draws speed-ups as dots in their intervals, a row each.
func forest(list []ratio, says string) (chart, error) {
	var values []float64
	for _, r := range list {
		values = append(values, r.s.Median, r.s.CI95[0], r.s.CI95[1])
	}
	low, high := room(values)
	p := newPlot("times as fast as a; right is better")
	p.X.Min, p.X.Max = math.Log2(low), math.Log2(high)
	ticks := logarithmic(ratios(low, high))
	p.X.Tick.Marker = ticks
	var places []float64
	var names []string
	gaps, gap := 0.0, 0.0
	for i := 1; i < len(list); i++ {
		if list[i].group == list[i-1].group {
			gap = 0.6 // between groups, where there are any
		}
	}
	y := make([]float64, len(list))
	for i := 0; i < len(list); {
		j := i
		for j < len(list) && list[j].group == list[i].group {
			y[j] = float64(j) + gaps
			j++
		}
		places, names = append(places, (y[i]+y[j-1])/2), append(names, list[i].group)
		if i = j; j < len(list) {
			gaps += gap
		}
	}
	count := float64(len(list)) + gaps
	for i := range y {
		y[i] = count - 1 - y[i] // the first on top
	}
	for i := range places {
		places[i] = count - 1 - places[i]
	}
	rows(p, places, names, 0)
	p.Y.Max = count - 0.4
	upright(p, at(ticks)...)
	one, _ := plotter.NewLine(plotter.XYs{{X: 0, Y: p.Y.Min}, {X: 0, Y: p.Y.Max}})
	one.LineStyle = draw.LineStyle{Color: inkOne.colour(), Width: 1.25}
	p.Add(one)
	for i, r := range list {
		if !drawable(r.s) {
			continue
		}
		middle, down, up := bounded(r.s)
		points := plotter.XYs{{X: middle, Y: y[i]}}
		bars, err := plotter.NewXErrorBars(errorBars{points, []float64{down}, []float64{up}})
		if err != nil {
			return chart{}, fmt.Errorf("%s: %w", r.group, err)
		}
		bars.LineStyle = draw.LineStyle{Color: side(r.side).colour(), Width: 2}
		bars.CapWidth = 6
		p.Add(bars, dots(points, side(r.side), 3.5, true))
	}
	svg, err := drawn(p, vg.Length(count*rowHeight+axisHeight+6), says)
	return chart{Caption: says, SVG: svg}, err
}

// line is a side's speed-ups over the lengths of an axis.
type line struct {
	side int
	x    []int64
	s    []statistics.Speedup
}

// sweep draws speed-ups over an axis.
func sweep(axis string, lines []line, low, high float64, says string) (chart, error) {
	p := newPlot(axis)
	p.Y.Label.Text = "times as fast as a"
	p.Y.Min, p.Y.Max = math.Log2(low), math.Log2(high)
	levels := logarithmic(ratios(low, high))
	p.Y.Tick.Marker = levels
	p.Y.Tick.Label.Color = inkSoft.colour()
	// Lengths stand at even distances in the order given, which need not rise.
	var ticks plot.ConstantTicks
	for i, n := range lines[0].x {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: fmt.Sprint(n)})
	}
	for every := 2; len(ticks) > 10 && every < 64; every *= 2 {
		shown := 0
		for i := range ticks {
			if i%every != 0 {
				ticks[i].Label = ""
			} else {
				shown++
			}
		}
		if shown <= 10 {
			break
		}
	}
	p.X.Tick.Marker = ticks
	p.X.Min, p.X.Max = -0.4, float64(len(lines[0].x))-0.6
	for _, t := range at(levels) {
		level(p, t, inkGrid)
	}
	level(p, 0, inkOne)
	for k, l := range lines {
		var points plotter.XYs
		var down, up []float64
		shift := 0.06 * (float64(k) - float64(len(lines)-1)/2) // so that intervals do not hide each other
		for i, s := range l.s {
			if !drawable(s) {
				continue
			}
			middle, below, above := bounded(s)
			points = append(points, plotter.XY{X: float64(i) + shift, Y: middle})
			down, up = append(down, below), append(up, above)
		}
		if len(points) == 0 {
			continue
		}
		path, err := plotter.NewLine(points)
		if err != nil {
			return chart{}, err
		}
		path.LineStyle = draw.LineStyle{Color: side(l.side).colour(), Width: 1.5}
		bars, err := plotter.NewYErrorBars(errorBars{points, down, up})
		if err != nil {
			return chart{}, err
		}
		bars.LineStyle = draw.LineStyle{Color: side(l.side).colour(), Width: 1.25}
		p.Add(path, bars, dots(points, side(l.side), 3, true))
	}
	svg, err := drawn(p, 230, says)
	return chart{Caption: says, SVG: svg}, err
}

// runs are the timed runs of a side.
type runs struct {
	name  string
	side  int
	times []float64
}

// spread is how far apart times may be on a linear axis.
const spread = 6

// distribution draws each run as a dot and their quartiles as a box.
func distribution(list []runs, unit string, points int, says string) (chart, error) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, r := range list {
		for _, t := range r.times {
			low, high = min(low, t), max(high, t)
		}
	}
	p := newPlot(unit)
	place := func(t float64) float64 { return t }
	var ticks plot.ConstantTicks
	if low > 0 && high/low > spread {
		place = math.Log2
		p.X.Label.Text += ", logarithmic"
		ticks = logarithmic(decades(low/1.1, high*1.1))
		p.X.Min, p.X.Max = math.Log2(low/1.1), math.Log2(high*1.1)
	} else {
		margin := max((high-low)*0.04, high*0.001, 1e-9)
		p.X.Min, p.X.Max = max(low-margin, 0), high+margin
		ticks = even(p.X.Min, p.X.Max)
	}
	p.X.Tick.Marker = ticks
	places := downwards(p, len(list), func(i int) string { return list[i].name })
	upright(p, at(ticks)...)
	for i, r := range list {
		y := places[i]
		var xy plotter.XYs
		for k, t := range thin(r.times, points) {
			xy = append(xy, plotter.XY{X: place(t), Y: y + 0.26*float64(k*7%11-5)/5}) // the same each time
		}
		p.Add(dots(xy, side(r.side), 1.5, true))
		var all plotter.Values
		for _, t := range r.times {
			all = append(all, place(t))
		}
		box, err := plotter.NewBoxPlot(14, y, all)
		if err != nil {
			return chart{}, fmt.Errorf("%s: %w", r.name, err)
		}
		box.Horizontal = true
		box.FillColor = nil
		stroke := draw.LineStyle{Color: inkText.colour(), Width: 0.9}
		box.BoxStyle, box.WhiskerStyle, box.CapWidth = stroke, stroke, 6
		box.MedianStyle = draw.LineStyle{Color: inkText.colour(), Width: 2}
		box.GlyphStyle.Radius = 0
		p.Add(box)
	}
	svg, err := drawn(p, vg.Length(float64(len(list))*(rowHeight+5)+axisHeight+6), says)
	return chart{Caption: says, SVG: svg}, err
}

// bar is a group of bars with a name.
type bar struct {
	name   string
	values []float64 // A's first, then the sides'
}

// bars draws values of all sides beside each other.
func bars(list []bar, unit, says string) (chart, error) {
	sides := len(list[0].values)
	high := 0.0
	for _, b := range list {
		for _, v := range b.values {
			high = max(high, v)
		}
	}
	p := newPlot(unit)
	p.X.Min, p.X.Max = 0, max(high*1.03, 1e-9)
	ticks := even(0, p.X.Max)
	p.X.Tick.Marker = ticks
	downwards(p, len(list), func(i int) string { return list[i].name })
	upright(p, at(ticks)...)
	thick := vg.Length(max(5, 12-2*sides))
	for k := range sides {
		values := make(plotter.Values, len(list))
		for i, b := range list {
			values[len(list)-1-i] = b.values[k]
		}
		chart, err := plotter.NewBarChart(values, thick-1)
		if err != nil {
			return chartNone, err
		}
		chart.Horizontal = true
		chart.Color = side(k - 1).colour()
		chart.LineStyle.Width = 0
		chart.Offset = (vg.Length(sides-1)/2 - vg.Length(k)) * thick
		p.Add(chart)
	}
	svg, err := drawn(p, vg.Length(len(list))*(thick*vg.Length(sides)+9)+axisHeight+6, says)
	return chart{Caption: says, SVG: svg}, err
}

var chartNone chart
