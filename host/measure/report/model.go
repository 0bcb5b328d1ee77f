package report

import (
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/statistics"
)

// What a report shows at most of each list; the raw data have all.
const (
	maxRows    = 300  // of a table
	maxOutputs = 12   // of all sides, and at least four of each
	maxForest  = 48   // rows of the chart of speed-ups
	maxSweeps  = 8    // charts over an axis
	maxSwept   = 1000 // dots of these charts
	maxCharts  = 8    // of distributions
	maxPoints  = 3000 // dots of all distributions
	maxParts   = 10   // of a run
	maxBlocks  = 12   // of a run
	maxChoices = 200  // of a plan
)

// model is a report on a comparison of a model.
type model struct {
	*comparison.Swept
	single bool // the data are those of one side and size
}

// Model writes the report on a comparison of a model: an HTML file of less than MaxBytes.
func Model(s *comparison.Swept, o Options) ([]byte, error) {
	m := &model{Swept: s}
	var data any = s
	if r := s.Result(); r != nil {
		m.single, data = true, r
	}
	p := &page{Title: filepath.Base(s.Model)}
	m.verdict(p)
	return render(p, data, o, m.speed, m.times, m.answers, m.nodes, m.memory, m.plan,
		func() (*section, error) { return m.subject(o) })
}

// Places in the data.

func (m *model) against(cell, side int) string {
	if m.single {
		return ""
	}
	return fmt.Sprintf("/cells/%d/sides/%d", cell, side)
}

func (m *model) timed(cell, side int) string {
	switch {
	case m.single && side < 0:
		return "/a"
	case m.single:
		return "/b"
	case side < 0:
		return fmt.Sprintf("/cells/%d/a", cell)
	}
	return m.against(cell, side)
}

func (m *model) opened(side int) string {
	switch {
	case side < 0:
		return "/a"
	case m.single:
		return "/b"
	}
	return fmt.Sprintf("/sides/%d", side)
}

// of is what is known of a side; A is -1.
func (m *model) of(side int) *comparison.Opened {
	if side < 0 {
		return &m.A
	}
	return &m.Sides[side]
}

// name is what a side is called in tables.
func (m *model) name(side int) string { return named(side, m.of(side).Name) }

// cellName is a cell in words.
func (m *model) cellName(cell int) string {
	if len(m.Axes) == 0 {
		return cmp.Or(m.Cells[cell].Workload.String(), "one size")
	}
	return comparison.In(m.Axes, m.Cells[cell].Lengths)
}

// label is a cell where there is little room.
func (m *model) label(cell int) string {
	if len(m.Axes) == 0 {
		return m.cellName(cell)
	}
	return comparison.Label(m.Axes, m.Cells[cell].Lengths)
}

// right says whether a side's answers are equal, and whether they can be.
func (m *model) right(side int) (equal bool, random string) {
	equal = true
	for i := range m.Cells {
		p := &m.Cells[i].Sides[side].Parity
		if random = cmp.Or(random, p.Random); !p.OK && p.Random == "" {
			equal = false
		}
	}
	return equal, random
}

// verdict is what stands on top.
func (m *model) verdict(p *page) {
	var wrong []string
	random, best := "", -1
	worth := func(side int) (float64, float64) { // how often it is faster, then by how much
		wins, all := 0.0, []float64{}
		for i := range m.Cells {
			s := m.Cells[i].Sides[side].Speedup
			if all = append(all, s.Median); s.Significant && s.Median > 1 {
				wins++
			} else if s.Significant {
				wins--
			}
		}
		return wins, statistics.Median(all)
	}
	for i := range m.Sides {
		equal, r := m.right(i)
		random = cmp.Or(random, r)
		if !equal {
			wrong = append(wrong, m.Sides[i].Name)
			continue
		}
		if best < 0 {
			best = i
			continue
		}
		a, x := worth(i)
		if b, y := worth(best); a > b || a == b && x > y {
			best = i
		}
	}
	switch {
	case len(wrong) > 0:
		p.Answers = "The answers of " + strings.Join(wrong, ", ") + " differ from those of " + m.A.Name + "."
	case random != "":
		p.Answers = "The answers cannot be compared: " + random + "."
	default:
		p.Right = true
		p.Answers = "The answers are equal within the tolerance, output by output."
		if len(m.Cells) > 1 || len(m.Sides) > 1 {
			p.Answers = fmt.Sprintf("The answers are equal within the tolerance, output by output, %s.",
				everywhere(len(m.Sides), len(m.Cells)))
		}
	}
	if best < 0 {
		p.State, p.Verdict = "bad", "No side answers as "+m.A.Name+" does"
	} else {
		p.State, p.Verdict = m.faster(best)
	}
	sizes := m.cellName(0)
	if len(m.Axes) > 0 {
		var words []string
		for _, a := range m.Axes {
			words = append(words, fmt.Sprintf("%s %s", a.Name, list(a.Lengths)))
		}
		sizes = strings.Join(words, "; ")
	}
	p.Lead = append(p.Lead, fmt.Sprintf(
		"a is %s; compared with it: %s. Inputs: %s. %d rounds in which each side runs twice, there and back, after %d "+
			"runs that do not count.",
		m.A.Name, strings.Join(m.names(), ", "), sizes, m.Rounds, m.Warmup))
	p.Lead = append(p.Lead, comparison.OfModel.Describe(m.A.Name, m.A.Plugins, m.A.Versions)+".")
	for i := range m.Sides {
		if b := &m.Sides[i]; b.Name != m.A.Name {
			p.Lead = append(p.Lead, comparison.OfModel.Describe(b.Name, b.Plugins, b.Versions)+".")
		}
	}
	var idle []string
	for i := range m.Sides {
		if !m.Sides[i].Changed && !m.A.Changed && m.Sides[i].Name != m.A.Name && m.ModelB == "" {
			idle = append(idle, m.Sides[i].Name)
		}
	}
	if len(idle) > 0 {
		p.Lead = append(p.Lead, strings.Join(idle,
			", ")+" replaces nothing in this model: what its times differ by is noise.")
	}
}

func everywhere(sides, cells int) string {
	switch {
	case cells == 1:
		return fmt.Sprintf("for all %d sides", sides)
	case sides == 1:
		return fmt.Sprintf("at all %d sizes of inputs", cells)
	}
	return fmt.Sprintf("for all %d sides at all %d sizes of inputs", sides, cells)
}

func list(n []int64) string {
	words := make([]string, len(n))
	for i := range n {
		words[i] = fmt.Sprint(n[i])
	}
	return strings.Join(words, ", ")
}

func (m *model) names() []string {
	var names []string
	for i := range m.Sides {
		names = append(names, m.Sides[i].Name)
	}
	return names
}

// faster says how a side's times compare with A's.
func (m *model) faster(side int) (state, verdict string) {
	name := m.Sides[side].Name
	if len(m.Cells) == 1 {
		return single(name, m.A.Name, m.Cells[0].Sides[side].Speedup)
	}
	wins, losses := m.counts(side)
	faster := m.between(side, func(s statistics.Speedup) bool { return s.Significant && s.Median > 1 })
	slower := m.between(side, func(s statistics.Speedup) bool { return s.Significant && s.Median <= 1 })
	const others = "no significant difference at the others"
	switch n := len(m.Cells); {
	case wins+losses == 0:
		return "even", fmt.Sprintf("No significant difference in time between %s and %s at any of %d sizes", name, m.A.Name,
			n)
	case wins == n:
		return "good", fmt.Sprintf("%s is %s as fast as %s, faster at all %d sizes", name, faster, m.A.Name, n)
	case losses == n:
		return "bad", fmt.Sprintf("%s is %s as fast as %s, slower at all %d sizes", name, slower, m.A.Name, n)
	case losses == 0:
		return "good", fmt.Sprintf("%s is %s as fast as %s at %d of %d sizes, %s", name, faster, m.A.Name, wins, n, others)
	case wins == 0:
		return "bad", fmt.Sprintf("%s is %s as fast as %s at %d of %d sizes, %s", name, slower, m.A.Name, losses, n, others)
	default:
		return "even", fmt.Sprintf("%s is faster than %s at %d of %d sizes (%s) and slower at %d (%s)", name, m.A.Name, wins,
			n, faster, losses, slower)
	}
}

// between is the range of those speed-ups of a side that are meant: "1.20× to 1.50×".
func (m *model) between(side int, meant func(statistics.Speedup) bool) string {
	low, high := math.Inf(1), math.Inf(-1)
	for i := range m.Cells {
		if s := m.Cells[i].Sides[side].Speedup; meant(s) {
			low, high = min(low, s.Median), max(high, s.Median)
		}
	}
	if times(low) == times(high) {
		return times(low) + "×"
	}
	return times(low) + "× to " + times(high) + "×"
}

// counts are the cells in which a side is faster and slower than A.
func (m *model) counts(side int) (wins, losses int) {
	for i := range m.Cells {
		switch s := m.Cells[i].Sides[side].Speedup; {
		case s.Significant && s.Median > 1:
			wins++
		case s.Significant:
			losses++
		}
	}
	return wins, losses
}

// speed is the section of speed-ups.
func (m *model) speed() (*section, error) {
	s := &section{ID: "speed", Title: "Speed-up",
		Text: []string{"Time of a over time of the other side, each the median of its runs. Lines and columns of " +
			"intervals are 95 % confidence. ~ marks what chance alone could have done."}}
	if len(m.Sides) > 1 {
		s.Legend = legend("", m.names())
	}
	charts, err := m.sweeps()
	if err != nil {
		return nil, err
	}
	s.Charts = charts
	var all []ratio
	for i := range m.Cells {
		for j := range m.Sides {
			group := m.label(i)
			if len(m.Cells) == 1 {
				group = m.Sides[j].Name
			}
			all = append(all, ratio{group, j, m.Cells[i].Sides[j].Speedup})
		}
	}
	if len(charts) == 0 && len(all) <= maxForest {
		c, err := forest(all, "Speed-up over "+m.A.Name)
		if err != nil {
			return nil, err
		}
		s.Charts = append(s.Charts, c)
	}
	var medians []float64
	for i := range m.Cells {
		medians = append(medians, m.Cells[i].A.MedianMS)
		for j := range m.Sides {
			medians = append(medians, m.Cells[i].Sides[j].MedianMS)
		}
	}
	digits := decimals(medians)
	t := table{}
	for _, a := range m.Axes {
		t.Head = append(t.Head, head{a.Name, true})
	}
	t.Head = append(t.Head, head{"side", false}, head{"a, ms", true}, head{"side, ms", true}, head{"speed-up", true},
		head{"95 % interval", true}, head{"p", true}, head{"runs each", true}, head{"answers", false})
	for i := range m.Cells {
		c := &m.Cells[i]
		for j := range c.Sides {
			b := &c.Sides[j]
			var row []cell
			for _, a := range m.Axes {
				row = append(row, count(int(c.Lengths[a.Name]), fmt.Sprintf("/cells/%d/lengths/%s", i, pointer(a.Name))))
			}
			at := m.against(i, j)
			row = append(row, text(b.Name),
				one(num(c.A.MedianMS, m.timed(i, -1)+"/median_ms", fixed(c.A.MedianMS, digits))),
				one(num(b.MedianMS, m.timed(i, j)+"/median_ms", fixed(b.MedianMS, digits))),
				speedup(b.Speedup, at+"/speedup"), interval(b.Speedup, at+"/speedup"), pvalue(b.Speedup.P, at+"/speedup"),
				text(fmt.Sprint(len(b.TimesMS))), answered(b.Parity))
			t.Rows = append(t.Rows, row)
		}
	}
	t.cut(maxRows)
	s.Tables = append(s.Tables, t)
	for i := range m.Cells {
		for j := range m.Cells[i].Sides {
			if m.Cells[i].Sides[j].Speedup.Few {
				s.Text = append(s.Text, fewRuns)
				return s, nil
			}
		}
	}
	return s, nil
}

// answered is a word on parity.
func answered(p comparison.Parity) cell {
	switch {
	case p.OK:
		return cell{Text: "equal"}
	case p.Random != "":
		return cell{Text: "random"}
	}
	return cell{Text: "DIFFERENT", Class: "bad"}
}

// pointer escapes a key of a JSON pointer.
func pointer(key string) string { return strings.NewReplacer("~", "~0", "/", "~1").Replace(key) }

// cut leaves a table's first rows.
func (t *table) cut(most int) {
	if left := len(t.Rows) - most; left > 0 {
		t.Rows = t.Rows[:most]
		t.More = fmt.Sprintf("%d more rows are in the raw data.", left)
	}
}

// sweeps are the charts over the axis with most lengths, one for each size of the others.
func (m *model) sweeps() ([]chart, error) {
	longest := -1
	for i, a := range m.Axes {
		if longest < 0 || len(a.Lengths) > len(m.Axes[longest].Lengths) {
			longest = i
		}
	}
	if longest < 0 || len(m.Axes[longest].Lengths) < 3 {
		return nil, nil
	}
	axis := m.Axes[longest]
	others := slices.Delete(slices.Clone(m.Axes), longest, longest+1)
	var values []float64
	var names []string
	groups := map[string][]int{}
	for i := range m.Cells {
		name := strings.ReplaceAll(comparison.In(others, m.Cells[i].Lengths), "=", " ")
		if groups[name] == nil {
			names = append(names, name)
		}
		groups[name] = append(groups[name], i)
		for _, b := range m.Cells[i].Sides {
			values = append(values, b.Speedup.Median, b.Speedup.CI95[0], b.Speedup.CI95[1])
		}
	}
	low, high := room(values)
	of := func(charts int) int { return charts * len(m.Sides) * len(axis.Lengths) } // dots
	shown := min(len(names), maxSweeps, max(maxSwept/of(1), 1))
	every := (of(shown) + maxSwept - 1) / maxSwept
	var charts []chart
	for _, name := range names[:shown] {
		var lines []line
		for j := range m.Sides {
			l := line{side: j}
			for k, i := range groups[name] {
				if k%every != 0 {
					continue
				}
				l.x, l.s = append(l.x, m.Cells[i].Lengths[axis.Name]), append(l.s, m.Cells[i].Sides[j].Speedup)
			}
			lines = append(lines, l)
		}
		says := "Speed-up by " + axis.Name
		if name != "" {
			says += ", " + name
		}
		if every > 1 {
			says += fmt.Sprintf(" (one of %d lengths)", every)
		}
		c, err := sweep(axis.Name, lines, low, high, says)
		if err != nil {
			return nil, err
		}
		charts = append(charts, c)
	}
	return charts, nil
}

// times is the section of distributions.
func (m *model) times() (*section, error) {
	s := timesSection()
	if len(m.Sides) > 1 || len(m.Cells) > 1 {
		s.Legend = legend(m.name(-1), m.names())
	}
	shown := min(len(m.Cells), maxCharts)
	points := max(maxPoints/(shown*(len(m.Sides)+1)), 8)
	if shown < len(m.Cells) {
		s.Text = append(s.Text, fmt.Sprintf("The first %d of %d sizes; the raw data have all.", shown, len(m.Cells)))
	}
	for i := range shown {
		c := &m.Cells[i]
		all := []runs{{m.name(-1), -1, c.A.TimesMS}}
		for j, b := range c.Sides {
			all = append(all, runs{b.Name, j, b.TimesMS})
		}
		drawn, err := distribution(all, "ms a run", points, "Times, "+m.cellName(i))
		if err != nil {
			return nil, err
		}
		s.Charts = append(s.Charts, drawn)
	}
	return s, nil
}

// answers is the section of parity: of each output of a side, the cell in which it is furthest from A.
func (m *model) answers() (*section, error) {
	s := &section{ID: "answers", Title: "Answers",
		Text: []string{"Each output of a side against a's, for the size of inputs where they are furthest apart. An " +
			"element agrees within the absolute tolerance plus the relative one times a's value."}}
	t := table{Head: []head{{"side", false}, {"output", false}, {"answers", false}, {"type", false}}}
	if len(m.Cells) > 1 {
		t.Head = append(t.Head, head{"inputs", false})
	}
	t.Head = append(t.Head, head{"max abs. error", true}, head{"of tolerance", true}, head{"99 % below", true},
		head{"tolerance", true}, head{"least cosine", true}, head{"same top-1", true}, head{"outside", true})
	left := 0
	for j := range m.Sides {
		var order []int
		worst := map[int]int{}
		for i := range m.Cells {
			for k, o := range m.Cells[i].Sides[j].Parity.Outputs {
				at, seen := worst[k]
				if !seen {
					order, worst[k] = append(order, k), i
				} else if further(o, m.Cells[at].Sides[j].Parity.Outputs[k]) {
					worst[k] = i
				}
			}
		}
		of := func(k int) comparison.OutputParity { return m.Cells[worst[k]].Sides[j].Parity.Outputs[k] }
		// The first output stays first: of most models it is the one that is used.
		if len(order) > 1 {
			slices.SortStableFunc(order[1:], func(x, y int) int {
				if further(of(x), of(y)) {
					return -1
				} else if further(of(y), of(x)) {
					return 1
				}
				return 0
			})
		}
		most := max(maxOutputs/len(m.Sides), 4)
		if cut := len(order) - most; cut > 0 {
			left, order = left+cut, order[:most]
		}
		for _, k := range order {
			t.Rows = append(t.Rows, m.output(worst[k], j, k))
		}
	}
	t.cut(maxRows)
	if left > 0 {
		t.More = strings.TrimSpace(
			fmt.Sprintf("%s %d more outputs, none further off than these, are in the raw data.", t.More, left))
	}
	s.Tables = append(s.Tables, t)
	for j := range m.Sides {
		if zeros := m.Sides[j].Zeros; len(zeros) > 0 {
			s.Text = append(s.Text, fmt.Sprintf("%s has zeros in %s where tokens are hidden; these rows are not compared.",
				m.Sides[j].Name, strings.Join(zeros, ", ")))
		}
	}
	return s, nil
}

// further says whether an output is further from A's than another.
func further(p, q comparison.OutputParity) bool {
	if p.OK != q.OK {
		return !p.OK
	}
	return p.MaxAbsolute > q.MaxAbsolute
}

// output is a row of the table of parity.
func (m *model) output(i, j, k int) []cell {
	o := m.Cells[i].Sides[j].Parity.Outputs[k]
	at := fmt.Sprintf("%s/parity/outputs/%d", m.against(i, j), k)
	row := []cell{text(m.Sides[j].Name), code(o.Name), agreed(o), text(fmt.Sprintf("%s%v", o.Type, o.Shape))}
	if len(m.Cells) > 1 {
		row = append(row, text(m.cellName(i)))
	}
	errorOf := func(x float64, field string) cell {
		if x == math.MaxFloat64 {
			return text("not finite")
		}
		return one(num(x, at+field, difference(x)))
	}
	absolute := num(o.Absolute, at+"/absolute", fmt.Sprintf("%g", o.Absolute))
	absolute.After = " + "
	relative := num(o.Relative, at+"/relative", fmt.Sprintf("%g", o.Relative))
	row = append(row, errorOf(o.MaxAbsolute, "/max_absolute"), errorOf(o.OfTolerance, "/of_tolerance"),
		errorOf(o.P99, "/p99_absolute"),
		cell{Number: &absolute, More: []number{relative}})
	if o.Cosine != nil {
		row = append(row, one(num(*o.Cosine, at+"/least_cosine", cosine(*o.Cosine))))
	} else {
		row = append(row, text(""))
	}
	if o.Top1 != nil {
		n := scaled(*o.Top1, 100, at+"/top1_agreement", fixed(*o.Top1*100, 2))
		n.After = " %"
		row = append(row, one(n))
	} else {
		row = append(row, text(""))
	}
	row = append(row, count(int(o.Disagree), at+"/disagree"))
	return row
}

// agreed says of an output whether it is a's.
func agreed(o comparison.OutputParity) cell {
	switch {
	case o.Problem != "":
		return cell{Text: o.Problem, Class: "bad wrap"}
	case !o.OK:
		return cell{Text: "DIFFERENT", Class: "bad"}
	case o.Noise != nil:
		return cell{Text: "equal within the runtime's own rounding", Class: "wrap"}
	case o.SameMistake():
		return cell{Text: "equal, and both far from the model without ONNX Runtime's optimisations", Class: "wrap"}
	}
	return text("equal")
}
