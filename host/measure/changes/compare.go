package changes

import (
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/statistics"
)

// comparisonVersion is the version of Comparison's JSON.
const comparisonVersion = 3

// Comparison says what changed between two results.
type Comparison struct {
	SchemaVersion int    `json:"schema_version"`
	Old           Origin `json:"old"`
	New           Origin `json:"new"`
	// Notes say why times of the two may say nothing about each other: another model, another machine. Empty where they
	// may.
	Notes   []string `json:"notes"`
	Changed []Change `json:"changed"` // beside the times
	Times   []Time   `json:"times"`   // of sides and cells that are in both
	// Memory is of generations, of sides that are in both.
	Memory []Memory `json:"memory,omitempty"`
	// Speedups are those over A, of sides and cells that are in both; empty where the two have other A.
	Speedups []Gain   `json:"speedups"`
	OnlyOld  []string `json:"only_old"` // cells and sides
	OnlyNew  []string `json:"only_new"`

	otherTask bool // generations of other inputs, or searched otherwise
}

// Origin is one of the two.
type Origin struct {
	Time  string `json:"time"`  // of the measurement, as RFC 3339 has it, in UTC
	Model string `json:"model"` // its path, as the comparison was called
}

// Change is something that is not as it was.
type Change struct {
	What string `json:"what"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// Estimate is a median with the interval of statistics.Interval: nil where there are too few runs for one.
type Estimate struct {
	MedianMS float64  `json:"median_ms"`
	LowMS    *float64 `json:"low_ms"`
	HighMS   *float64 `json:"high_ms"`
	Runs     int      `json:"runs"`
}

// Time is how long the runs of a side took.
type Time struct {
	// lengths in words, or of generations a part: "to the first token", "decode steps"
	Cell string   `json:"cell,omitempty"`
	Side string   `json:"side"`
	Old  Estimate `json:"old"`
	New  Estimate `json:"new"`
	// Delta is new/old - 1: -0.1 is a tenth less.
	Delta       float64 `json:"delta"`
	P           float64 `json:"p"` // two-sided U-test
	Significant bool    `json:"significant"`
}

// Gain is how a side's speed-up over A changed.
type Gain struct {
	Cell string             `json:"cell,omitempty"`
	Side string             `json:"side"`
	Old  statistics.Speedup `json:"old"`
	New  statistics.Speedup `json:"new"`
	// Change is how many times the old one the new one is, see statistics.ChangeOf.
	Change statistics.Speedup `json:"change"`
}

// Compare says what changed from one result to another. One of a model and one of generations are an error.
func Compare(from, to Measured) (*Comparison, error) {
	if x, y := from.kind(), to.kind(); x != y {
		return nil, &diagnostic.Error{Path: to.path(), Found: "a result of " + y,
			Needed: "one of " + x + ", as the other is"}
	}
	c := &Comparison{SchemaVersion: comparisonVersion, Old: from.origin(), New: to.origin(), Notes: notes(from, to),
		Changed: changes(from, to),
		Times:   []Time{}, Speedups: []Gain{}, OnlyOld: []string{}, OnlyNew: []string{}}
	if from.Generations != nil {
		c.Memory, c.otherTask = memory(from.Generations, to.Generations), !sameTask(from.Generations, to.Generations)
	}
	x, y := from.cells(), to.cells()
	sameA := from.A() == to.A()
	for _, key := range x.keys {
		a, b := x.at[key], y.at[key]
		if b == nil {
			c.OnlyOld = append(c.OnlyOld, x.named(key)...)
			continue
		}
		if sameA {
			c.Times = append(c.Times, timeOf(key, a.a, b.a, from.A()))
		} else {
			c.OnlyOld, c.OnlyNew = append(c.OnlyOld, label(key, "a: "+from.A())), append(c.OnlyNew, label(key, "a: "+to.A()))
		}
		for i := range a.sides {
			p := &a.sides[i]
			q := b.side(p.name)
			if q == nil {
				c.OnlyOld = append(c.OnlyOld, label(key, p.name))
				continue
			}
			c.Times = append(c.Times, timeOf(key, p.ms, q.ms, p.name))
			if sameA {
				c.Speedups = append(c.Speedups, Gain{key, p.name, p.speedup, q.speedup, statistics.ChangeOf(a.a, p.ms, b.a, q.ms)})
			}
		}
		for _, q := range b.sides {
			if a.side(q.name) == nil {
				c.OnlyNew = append(c.OnlyNew, label(key, q.name))
			}
		}
	}
	for _, key := range y.keys {
		if x.at[key] == nil {
			c.OnlyNew = append(c.OnlyNew, y.named(key)...)
		}
	}
	return c, nil
}

func (m Measured) origin() Origin { return Origin{m.Environment().Date, m.path()} }

func label(cell, side string) string { return strings.TrimSpace(cell + " " + side) }

func timeOf(cell string, old, now []float64, side string) Time {
	s := statistics.SpeedupOf(old, now)
	return Time{Cell: cell, Side: side, Old: estimate(old), New: estimate(now), Delta: 1/s.Median - 1, P: s.P,
		Significant: s.Significant}
}

func estimate(times []float64) Estimate {
	e := Estimate{MedianMS: statistics.Median(times), Runs: len(times)}
	if low, high, ok := statistics.Interval(times); ok {
		e.LowMS, e.HighMS = &low, &high
	}
	return e
}

// notes say in words why times of two results may say nothing about each other.
func notes(from, to Measured) []string {
	list := []string{}
	if otherModel(from.path(), to.path()) {
		list = append(list, "the models differ: this says how two models compare, and not how operators do")
	}
	if a, b := machine(from.Environment()), machine(to.Environment()); a != b {
		list = append(list, "the machines differ: compare the speed-ups, each of which is of one machine, and not the times")
	}
	if x, y := from.Generations, to.Generations; x != nil && y != nil && !sameTask(x, y) {
		list = append(list, "the inputs or the search differ: this says how two tasks compare, and not how operators do")
	}
	return list
}

// otherModel says whether results are of models of other names. Folders may differ: a result may be of another machine.
func otherModel(from, to string) bool { return filepath.Base(from) != filepath.Base(to) }

// machine is what times depend on of a machine, in words.
func machine(e comparison.Environment) string {
	return fmt.Sprintf("%s, %d cores, %s/%s (%s)", e.CPU, e.Cores, e.OS, e.Arch, strings.Join(e.ISA, " "))
}

// changes lists what is not as it was, beside times.
func changes(from, to Measured) []Change {
	list := []Change{}
	note := func(what, old, now string) {
		if old != now {
			list = append(list, Change{what, old, now})
		}
	}
	a, b := from.Environment(), to.Environment()
	note("model", from.path(), to.path())
	note("onnxruntime", a.ONNXRuntime, b.ONNXRuntime)
	note("machine", machine(a), machine(b))
	if x, y := a.MemoryBandwidthGB, b.MemoryBandwidthGB; x > 0 && y > 0 && math.Abs(y/x-1) > 0.1 {
		note("memory bandwidth", fmt.Sprintf("%.0f GB/s", x), fmt.Sprintf("%.0f GB/s", y))
	}
	if from.Generations != nil {
		generated(from.Generations, to.Generations, note)
	} else {
		sides(from.Result, to.Result, note)
	}
	return list
}

// sides notes what is not as it was of a model's runs.
func sides(a, b *comparison.Swept, note func(what, old, now string)) {
	note("seed", fmt.Sprint(a.Seed), fmt.Sprint(b.Seed))
	note("rounds", fmt.Sprint(a.Rounds), fmt.Sprint(b.Rounds))
	fed(a, b, note)
	for _, x := range append([]comparison.Opened{a.A}, a.Sides...) {
		for _, y := range append([]comparison.Opened{b.A}, b.Sides...) {
			if x.Name == y.Name {
				plans(x, y, note)
				break
			}
		}
	}
}

// fed notes inputs of cells that are in both.
func fed(a, b *comparison.Swept, note func(what, old, now string)) {
	words := func(c *comparison.Cell) map[string]string {
		list := map[string]string{}
		for _, in := range c.Inputs {
			list[in.Name] = fmt.Sprintf("%s%v, %s", in.Type, in.Shape, in.From)
		}
		return list
	}
	for i := range a.Cells {
		key := lengths(&a.Cells[i])
		j := slices.IndexFunc(b.Cells, func(c comparison.Cell) bool { return lengths(&c) == key })
		if j < 0 {
			continue
		}
		before, now, shown := words(&a.Cells[i]), words(&b.Cells[j]), 0
		for _, name := range slices.Sorted(maps.Keys(merged(before, now))) {
			if before[name] == now[name] {
				continue
			}
			if shown++; shown > shownNodes {
				note(label(key, "inputs"), "more", "of other shapes or meaning")
				break
			}
			note(label(key, "input "+name), absent(before[name], "none"), absent(now[name], "none"))
		}
	}
}

func merged(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

func absent(text, word string) string {
	if text == "" {
		return word
	}
	return text
}

// shownNodes is how many blocks of a plan are named where they changed, and inputs of a cell.
const shownNodes = 3

// plans notes blocks that a side replaces otherwise.
func plans(x, y comparison.Opened, note func(what, old, now string)) {
	if x.Plan == nil || y.Plan == nil {
		note("blocks replaced by "+x.Name, fmt.Sprintf("%d of %d", x.Replaced, x.Blocks),
			fmt.Sprintf("%d of %d", y.Replaced, y.Blocks))
		return
	}
	words := func(plan []comparison.Choice) (list []block) {
		for _, c := range plan {
			b := block{c.Node, "unchanged"}
			if c.Operator != "" {
				b.runs = c.Operator + " of " + c.Plugin
			}
			list = append(list, b)
		}
		return list
	}
	otherwise(x.Name, words(x.Plan), words(y.Plan), note)
}

// block is a node that a block was recognised by, and what runs it, in words.
type block struct{ node, runs string }

// otherwise notes blocks that a side runs in another way.
func otherwise(side string, from, to []block, note func(what, old, now string)) {
	before, now := map[string]string{}, map[string]string{}
	var nodes []string
	for _, b := range from {
		before[b.node] = b.runs
		nodes = append(nodes, b.node)
	}
	for _, b := range to {
		if now[b.node] = b.runs; before[b.node] == "" {
			nodes = append(nodes, b.node)
		}
	}
	nodes = slices.DeleteFunc(nodes, func(node string) bool { return before[node] == now[node] })
	for i, node := range nodes {
		if i == shownNodes {
			note(fmt.Sprintf("plan of %s", side), fmt.Sprintf("%d more blocks", len(nodes)-i), "replaced otherwise")
			break
		}
		note(fmt.Sprintf("plan of %s, %s", side, node), absent(before[node], "no block"), absent(now[node], "no block"))
	}
}

// short is the beginning of a hash.
func short(hash string) string { return hash[:min(len(hash), 12)] }

// GeometricMean is that of the changes of whole runs' speed-ups, and their number; 1 of none.
func (c *Comparison) GeometricMean() (mean float64, of int) {
	sum := 0.0
	for _, g := range c.Speedups {
		if !isPart(g.Cell) {
			sum, of = sum+math.Log(g.Change.Median), of+1
		}
	}
	return math.Exp(sum / float64(max(of, 1))), of
}
