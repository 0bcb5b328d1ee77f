package report

import (
	"regexp"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/internal/must"
)

// TestSize: whatever it is of, a report is less than MaxBytes, and says what it leaves out.
func TestSize(t *testing.T) {
	large := example(huge)
	for i := range large.Axes[0].Lengths {
		large.Axes[0].Lengths[i] = int64(i)
	}
	page := must.Value(Model(large, Options{}))(t)
	t.Logf("%d bytes of %d cells and %d sides", len(page), len(large.Cells), len(large.Sides))
	for _, want := range []string{"more rows are in the raw data", "none further off than these",
		"The first 8 of 256 sizes"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	for name, of := range map[string]shape{"small": small, "usual": usual, "wrong": wrong} {
		page, err := Model(example(of), Options{})
		if err != nil || len(page) > 512<<10 {
			t.Errorf("%s: %d bytes, %v", name, len(page), err)
		}
	}
}

// TestAlone: a report needs no other file, no network and no script, and names become no part of the document.
func TestAlone(t *testing.T) {
	page := must.Value(Model(example(wrong), Options{Command: "graft ab " + hostile}))(t)
	for _, never := range []string{`<script`, `<link rel="stylesheet"`, `@import`, `url(`, `<iframe`, ` onload=`} {
		if strings.Contains(string(page), never) {
			t.Errorf("it has %s", never)
		}
	}
	for _, address := range regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(string(page), -1) {
		if !strings.HasPrefix(address[1], "data:") && !strings.HasPrefix(address[1], "#") {
			t.Errorf("it refers to %s", address[1])
		}
	}
}

// TestVerdict: what stands on top.
func TestVerdict(t *testing.T) {
	faster := statistics.Speedup{Median: 1.5, CI95: [2]float64{1.4, 1.6}, Significant: true}
	much := statistics.Speedup{Median: 3, CI95: [2]float64{2, 4}, Significant: true}
	slower := statistics.Speedup{Median: 0.8, CI95: [2]float64{0.7, 0.9}, Significant: true}
	even := statistics.Speedup{Median: 1.01, CI95: [2]float64{0.9, 1.1}}
	wide := []comparison.Axis{{Name: "sequence", Lengths: []int64{16, 64}}}
	for _, c := range []struct {
		axes  []comparison.Axis
		s     [][]statistics.Speedup // by cell, by side
		wrong int                    // side whose answers differ; -1 for none
		state string
		want  string
	}{
		{nil, [][]statistics.Speedup{{faster}}, -1, "good", "auto is 1.50× as fast as none"},
		{nil, [][]statistics.Speedup{{slower}}, -1, "bad", "auto is slower than none: 0.80× as fast"},
		{nil, [][]statistics.Speedup{{even}}, -1, "even", "No significant difference in time between auto and none"},
		{nil, [][]statistics.Speedup{{faster}}, 0, "bad", "No side answers as none does"},
		{nil, [][]statistics.Speedup{{slower, faster}}, -1, "good", "other is 1.50× as fast as none"},
		{nil, [][]statistics.Speedup{{slower, faster}}, 1, "bad", "auto is slower than none: 0.80× as fast"},
		{wide, [][]statistics.Speedup{{faster}, {faster}}, -1, "good",
			"auto is 1.50× as fast as none, faster at all 2 sizes"},
		{wide, [][]statistics.Speedup{{faster}, {even}}, -1, "good",
			"auto is 1.50× as fast as none at 1 of 2 sizes, no significant difference at the others"},
		{wide, [][]statistics.Speedup{{faster}, {slower}}, -1, "even",
			"auto is faster than none at 1 of 2 sizes (1.50×) and slower at 1 (0.80×)"},
		{wide, [][]statistics.Speedup{{even}, {slower}}, -1, "bad",
			"auto is 0.80× as fast as none at 1 of 2 sizes, no significant difference at the others"},
		{wide, [][]statistics.Speedup{{slower}, {slower}}, -1, "bad", "auto is 0.80× as fast as none, slower at all 2 sizes"},
		{wide, [][]statistics.Speedup{{faster}, {much}}, -1, "good",
			"auto is 1.50× to 3.00× as fast as none, faster at all 2 sizes"},
		{wide, [][]statistics.Speedup{{even}, {even}}, -1, "even",
			"No significant difference in time between auto and none at any of 2 sizes"},
	} {
		s := example(shape{sides: []string{"auto", "other"}[:len(c.s[0])], axes: c.axes, rounds: 2, outputs: 1, choices: 2})
		for i := range c.s {
			for j := range c.s[i] {
				s.Cells[i].Sides[j].Speedup = c.s[i][j]
				s.Cells[i].Sides[j].Parity.OK = j != c.wrong
			}
		}
		p := &page{}
		(&model{Swept: s}).verdict(p)
		if p.Verdict != c.want || p.State != c.state || p.Right != (c.wrong < 0) {
			t.Errorf("%q, %s, right %v; want %q, %s", p.Verdict, p.State, p.Right, c.want, c.state)
		}
	}
}

// TestOdd: times that are nothing and speed-ups without bounds are no fault.
func TestOdd(t *testing.T) {
	s := example(usual)
	for i := range s.Cells {
		for j := range s.Cells[i].Sides {
			b := &s.Cells[i].Sides[j]
			b.TimesMS = make([]float64, len(b.TimesMS))
			b.MedianMS, b.Speedup = 0, statistics.Speedup{Median: 1e300, CI95: [2]float64{0, 1e308}, P: 1}
		}
		s.Cells[i].A.TimesMS = []float64{0}
	}
	must.Value(Model(s, Options{}))(t)
}

// TestText: a chart of characters is as wide as it may be, and no wider.
func TestText(t *testing.T) {
	of := func(low, median, high float64) statistics.Speedup {
		return statistics.Speedup{Median: median, CI95: [2]float64{low, high}}
	}
	got := Text([]Row{{"batch=1 auto", of(1.9, 2, 2.1)}, {"batch=8 auto", of(0.5, 1, 1.5)},
		{"batch=16 a name that is much too long for a line", of(0.5, 0.5, 0.5)}}, 60)
	want := `
                             0.5x   0.75x  1x    1.5x  2x
batch=1 auto                                |           o-
batch=8 auto                   -------------o-------
batch=16 a name that is ...    o            |
`
	must.Equal(t, "\n"+got, want, got)
	for _, width := range []int{-1, 10, 40, 79, 200, 1 << 30} {
		for line := range strings.Lines(Text([]Row{{"a", of(0.001, 1, 1000)}, {"日本語", of(0, 0, 0)}}, width)) {
			if n := len([]rune(line)); n > min(max(width, minWidth), maxWidth)+1 {
				t.Errorf("width %d: %d columns in %q", width, n, line)
			}
		}
	}
}
