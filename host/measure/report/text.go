package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/rivo/uniseg"

	"github.com/opgraft/graft/host/measure/statistics"
)

// Row is a speed-up of a chart of characters.
type Row struct {
	Label   string // without control characters
	Speedup statistics.Speedup
}

// Least and greatest width of such a chart, and how much of it labels may take.
const (
	minWidth  = 40
	maxWidth  = 120
	labelPart = 0.45
)

// Text draws speed-ups with plain characters, in lines of at most width columns: a dot in its interval, on a
// logarithmic axis on which | is 1x.
func Text(list []Row, width int) string {
	if len(list) == 0 {
		return ""
	}
	width = min(max(width, minWidth), maxWidth)
	label := 0
	var values []float64
	for _, r := range list {
		label = max(label, uniseg.StringWidth(r.Label))
		values = append(values, r.Speedup.Median, r.Speedup.CI95[0], r.Speedup.CI95[1])
	}
	label = min(label, int(labelPart*float64(width)))
	low, high := room(values)
	columns := width - label - 2
	column := func(x float64) int {
		if !(x > 0) {
			return 0
		}
		c := int(math.Round(float64(columns-1) * math.Log(x/low) / math.Log(high/low)))
		return min(max(c, 0), columns-1)
	}
	var b strings.Builder
	line := func(name string, marks []byte) {
		name = fit(name, label)
		text := name + strings.Repeat(" ", label-uniseg.StringWidth(name)+2) + string(marks)
		fmt.Fprintln(&b, strings.TrimRight(text, " "))
	}
	axis := []byte(strings.Repeat(" ", columns))
	for _, t := range ratios(low, high) {
		mark := strings.TrimSuffix(t.Label, "×") + "x"
		from := min(max(column(t.Value)-len(mark)/2, 0), columns-len(mark))
		if strings.TrimSpace(string(axis[max(from-1, 0):min(from+len(mark)+1, columns)])) == "" {
			copy(axis[from:], mark)
		}
	}
	line("", axis)
	for _, r := range list {
		marks := []byte(strings.Repeat(" ", columns))
		marks[column(1)] = '|'
		for c := column(r.Speedup.CI95[0]); c <= column(r.Speedup.CI95[1]); c++ {
			marks[c] = '-'
		}
		marks[column(r.Speedup.Median)] = 'o'
		line(r.Label, marks)
	}
	return b.String()
}

// fit cuts a text to some columns.
func fit(text string, columns int) string {
	if uniseg.StringWidth(text) <= columns {
		return text
	}
	var b strings.Builder
	at := 0
	for g := uniseg.NewGraphemes(text); g.Next(); {
		if at += g.Width(); at > columns-3 {
			break
		}
		b.WriteString(g.Str())
	}
	return b.String() + "..."
}
