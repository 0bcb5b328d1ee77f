package comparison

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/measure/statistics"
)

// Versions of the JSON of results.
const (
	resultVersion = 2 // of Result
	sweepVersion  = 3 // of Swept
)

// Swept compares several sides with A, on each size of inputs that the axes give. Speed-ups are time of A over time
// of the side.
type Swept struct {
	SchemaVersion int    `json:"schema_version"`
	Model         string `json:"model"`
	ModelB        string `json:"model_b,omitempty"` // of the first of the sides, when that is another model
	Seed          uint64 `json:"seed"`
	Warmup        int    `json:"warmup"` // runs of each side before timing, in each cell
	Rounds        int    `json:"rounds"` // of A B C C B A, in each cell
	A             Opened `json:"a"`
	// Sides are those that are compared with A; the cells' are in the same order.
	Sides []Opened `json:"sides"`
	Axes  []Axis   `json:"axes"`
	// Cells are the sizes, in the order of the axes: the last one varies fastest. Without axes there is one.
	Cells []Cell `json:"cells"`
	// NodeTimes are measured where that is asked for.
	NodeTimes   *NodeTimes  `json:"node_times,omitempty"`
	Environment Environment `json:"environment"`
}

// Cell is a comparison with inputs of one size.
type Cell struct {
	Lengths  map[string]int64 `json:"lengths"` // by axis
	Inputs   []inputs.Info    `json:"inputs"`
	Workload inputs.Workload  `json:"workload"`
	A        Timed            `json:"a"`
	Sides    []Against        `json:"sides"`
}

// Against is a side of a cell, compared with A.
type Against struct {
	Name string `json:"name"`
	Timed
	Parity  Parity             `json:"parity"`
	Speedup statistics.Speedup `json:"speedup"`
}

// NodeTimes say where the time of a run goes, as ONNX Runtime's profile has it, in the cell in which A takes longest.
type NodeTimes struct {
	Cell  int         `json:"cell"` // its index
	A     SideTimes   `json:"a"`
	Sides []SideTimes `json:"sides"`
}

// SideTimes are the parts of a side's run. They are of its faster half of runs, in which the machine did little else;
// package profile says how.
type SideTimes struct {
	Name      string      `json:"name"`
	Runs      int         `json:"runs"`       // with the profiler, and as many without
	RunMS     float64     `json:"run_ms"`     // without the profiler
	BetweenMS float64     `json:"between_ms"` // what a run takes beside its nodes; below 0 is noise
	Parts     []PartTime  `json:"parts"`      // the longest first
	Blocks    []BlockTime `json:"blocks"`     // the longest first; what belongs to no block is not there
}

// PartTime is what the nodes of one kind take together: attention, linear layers, lookups ...
type PartTime struct {
	Part  string  `json:"part"`
	Nodes int     `json:"nodes"`
	MS    float64 `json:"ms"`
}

// BlockTime is what the nodes of a block take, or the operator in its place.
type BlockTime struct {
	Kind string  `json:"kind"`
	Node string  `json:"node"` // that it was recognised by, the same on all sides
	MS   float64 `json:"ms"`
}

// OK says whether the answers of all sides agree with A's in all cells.
func (s *Swept) OK() bool { return len(s.Differ()) == 0 }

// Differ lists the sides whose answers do not agree with A's, in any cell.
func (s *Swept) Differ() []string {
	var list []string
	for j := range s.Sides {
		for i := range s.Cells {
			if p := &s.Cells[i].Sides[j].Parity; !p.OK && p.Random == "" {
				list = append(list, s.Sides[j].Name)
				break
			}
		}
	}
	return list
}

// Result is a comparison of two sides on one size of inputs, as it is without others; nil of more.
func (s *Swept) Result() *Result {
	if len(s.Sides) != 1 || len(s.Cells) != 1 || len(s.Axes) > 0 {
		return nil
	}
	c := &s.Cells[0]
	b := &c.Sides[0]
	return &Result{SchemaVersion: resultVersion, Model: s.Model, ModelB: s.ModelB, Seed: s.Seed, Warmup: s.Warmup,
		Rounds: s.Rounds,
		A:      Side{s.A, c.A}, B: Side{s.Sides[0], b.Timed}, Inputs: c.Inputs, Workload: c.Workload, Parity: b.Parity,
		Speedup:   b.Speedup,
		NodeTimes: s.NodeTimes, Environment: s.Environment}
}

// Swept is the result as one of a single side and cell.
func (r *Result) Swept() *Swept {
	return &Swept{SchemaVersion: sweepVersion, Model: r.Model, ModelB: r.ModelB, Seed: r.Seed, Warmup: r.Warmup,
		Rounds: r.Rounds,
		A:      r.A.Opened, Sides: []Opened{r.B.Opened}, Axes: []Axis{}, NodeTimes: r.NodeTimes, Environment: r.Environment,
		Cells: []Cell{{Lengths: map[string]int64{}, Inputs: r.Inputs, Workload: r.Workload, A: r.A.Timed,
			Sides: []Against{{r.B.Name, r.B.Timed, r.Parity, r.Speedup}}}}}
}

// Read reads the JSON of a Result or a Swept; path names it in errors.
func Read(path string, data []byte) (*Swept, error) {
	var kind struct {
		SchemaVersion int             `json:"schema_version"`
		Cells         json.RawMessage `json:"cells"`
		Speedup       json.RawMessage `json:"speedup"`
	}
	fail := func(found string) error {
		return &diagnostic.Error{Path: path, Found: found, Needed: "the JSON of a comparison of a model",
			Fix: "graft ab MODEL.onnx -o json writes it"}
	}
	if err := json.Unmarshal(data, &kind); err != nil {
		return nil, fail(err.Error())
	}
	d := json.NewDecoder(bytes.NewReader(data))
	switch {
	case kind.SchemaVersion == sweepVersion && kind.Cells != nil:
		s := &Swept{}
		if err := d.Decode(s); err != nil {
			return nil, fail(err.Error())
		}
		return s, s.whole(fail)
	case kind.SchemaVersion == resultVersion && kind.Speedup != nil:
		r := &Result{}
		if err := d.Decode(r); err != nil {
			return nil, fail(err.Error())
		}
		s := r.Swept()
		return s, s.whole(fail)
	}
	return nil, fail(fmt.Sprintf("an object of schema_version %d", kind.SchemaVersion))
}

// whole refuses results whose cells lack sides or times.
func (s *Swept) whole(fail func(string) error) error {
	if len(s.Sides) == 0 || len(s.Cells) == 0 {
		return fail("a result without sides or cells")
	}
	for i := range s.Cells {
		c := &s.Cells[i]
		if len(c.Sides) != len(s.Sides) {
			return fail(fmt.Sprintf("cell %d with %d sides of %d", i, len(c.Sides), len(s.Sides)))
		}
		for j := range c.Sides {
			if len(c.A.TimesMS) == 0 || len(c.Sides[j].TimesMS) == 0 {
				return fail(fmt.Sprintf("cell %d without times", i))
			}
		}
	}
	if n := s.NodeTimes; n != nil && (n.Cell < 0 || n.Cell >= len(s.Cells) || len(n.Sides) != len(s.Sides)) {
		return fail("times of nodes of a cell or sides that there are not")
	}
	return nil
}

// In are the options in a cell: its lengths beside those that are not swept.
func (o *Options) In(cell map[string]int64) Options {
	in := *o
	in.Inputs.Dims = maps.Clone(o.Inputs.Dims)
	if in.Inputs.Dims == nil {
		in.Inputs.Dims = map[string]int64{}
	}
	maps.Copy(in.Inputs.Dims, cell)
	return in
}
