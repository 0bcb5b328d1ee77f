// Package tune measures how long KV-cache strategies take on this machine,
// for the layers of one model over a grid of shapes, and stores the tables: what a
// plan predicts is replaced by what was measured where there is a table.
package tune

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/machine"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
)

// tableVersion is the version of a table's file.
const tableVersion = 3

// Table is what was measured for layers of one kind.
type Table struct {
	SchemaVersion int         `json:"schema_version"`
	Machine       machine.ID  `json:"machine"`
	Layers        plan.Layers `json:"layers"`
	Axes          Axes        `json:"axes"`
	Rows          []Row       `json:"rows"`
	// Projection is the time in which keys and values of all layers are made of what they
	// are projected from, in the order of a row: of a step's new tokens for self
	// attention, of one encoder's output for cross attention. It is nil where the plugin
	// that multiplies was not loaded.
	Projection []float64 `json:"projection,omitempty"`
	Named      []string  `json:"named,omitempty"` // plugins whose operators were named
	Date       string    `json:"date"`
}

// Axes is the grid: every combination was measured. Each list ascends.
type Axes struct {
	Keys  []int64 `json:"keys"`
	Own   []int64 `json:"own"`
	Beams []int64 `json:"beams"`
	Batch []int64 `json:"batch"`
}

// Row is one candidate's times.
type Row struct {
	Strategy            plan.Strategy `json:"strategy"`
	Storage             plan.Storage  `json:"storage,omitempty"`
	plan.Implementation               // the operator that was measured
	// Seconds is the time of one step's operators of all layers, the batch
	// varying fastest, then beams, own positions, keys.
	Seconds []float64 `json:"seconds"`
}

// Candidate is what the row is of.
func (r *Row) Candidate(known plan.Implementations) plan.Candidate {
	return known.Candidate(r.Strategy, r.Storage)
}

// lists are the axes in the order of a row's numbers.
func (a *Axes) lists() [4][]int64 { return [4][]int64{a.Keys, a.Own, a.Beams, a.Batch} }

// Size is the number of shapes.
func (a *Axes) Size() int {
	n := 1
	for _, list := range a.lists() {
		n *= len(list)
	}
	return n
}

// Shape is the shape of a number.
func (a *Axes) Shape(i int) plan.Shape {
	s := plan.Shape{Batch: a.Batch[i%len(a.Batch)]}
	i /= len(a.Batch)
	s.Beams = a.Beams[i%len(a.Beams)]
	i /= len(a.Beams)
	s.Own = a.Own[i%len(a.Own)]
	s.Keys = a.Keys[i/len(a.Own)]
	return s
}

// check reports a table that cannot be one.
func (t *Table) check() error {
	for _, list := range t.Axes.lists() {
		if len(list) == 0 || list[0] < 0 || !slices.IsSorted(list) || len(slices.Compact(slices.Clone(list))) != len(list) {
			return fmt.Errorf("an axis is %v, needed are numbers of 0 or more that ascend", list)
		}
	}
	for _, r := range t.Rows {
		if len(r.Seconds) != t.Axes.Size() {
			return fmt.Errorf("%s has %d times, the grid %d shapes", r.Strategy, len(r.Seconds), t.Axes.Size())
		}
		for _, x := range r.Seconds {
			if !(x > 0 && x < 1e6) {
				return fmt.Errorf("%s takes %g s at a shape", r.Strategy, x)
			}
		}
	}
	if n := len(t.Projection); n != 0 && n != t.Axes.Size() {
		return fmt.Errorf("projections have %d times, the grid %d shapes", n, t.Axes.Size())
	}
	for _, x := range t.Projection {
		if !(x > 0 && x < 1e6) {
			return fmt.Errorf("a projection takes %g s at a shape", x)
		}
	}
	return nil
}

// Seconds is the time of one step's operators at a shape, between those of the grid
// in proportion of their logarithms; false outside of the grid and for candidates
// that were not measured. It allocates nothing.
func (t *Table) Seconds(c plan.Candidate, s plan.Shape) (float64, bool) {
	var row []float64
	for i := range t.Rows {
		if r := &t.Rows[i]; r.Strategy == c.Strategy && r.Storage.Whole() == c.Storage.Whole() {
			row = r.Seconds
		}
	}
	return t.between(row, s)
}

// between is a row's time at a shape.
func (t *Table) between(row []float64, s plan.Shape) (float64, bool) {
	if len(row) == 0 {
		return 0, false
	}
	if t.Layers.Type == "cross" {
		s.Own = t.Axes.Own[0]
	}
	var low, high [4]int
	var part [4]float64
	for i, x := range [4]int64{s.Keys, s.Own, s.Beams, s.Batch} {
		var ok bool
		if low[i], high[i], part[i], ok = place(t.Axes.list(i), x); !ok {
			return 0, false
		}
	}
	sum := 0.0
	for corner := range 16 {
		weight, at := 1.0, 0
		for i := range 4 {
			index, w := low[i], 1-part[i]
			if corner>>i&1 == 1 {
				index, w = high[i], part[i]
			}
			weight *= w
			at = at*len(t.Axes.list(i)) + index
		}
		if weight > 0 {
			sum += weight * math.Log(row[at])
		}
	}
	return math.Exp(sum), true
}

// list is one of lists.
func (a *Axes) list(i int) []int64 {
	switch i {
	case 0:
		return a.Keys
	case 1:
		return a.Own
	case 2:
		return a.Beams
	}
	return a.Batch
}

// place is where a number stands on an axis: between two of its numbers, and how far
// from the lower to the higher; false beyond the ends.
func place(axis []int64, x int64) (low, high int, part float64, ok bool) {
	if x < axis[0] || x > axis[len(axis)-1] {
		return 0, 0, 0, false
	}
	for axis[high] < x {
		high++
	}
	if axis[high] == x {
		return high, high, 0, true
	}
	low = high - 1
	a, b := scale(axis[low]), scale(axis[high])
	return low, high, (scale(x) - a) / (b - a), true
}

// scale is logarithmic and takes 0.
func scale(x int64) float64 { return math.Log(float64(1 + x)) }

// Tables are those of a model's kinds of layers; the zero value has none. They
// implement plan.Measurements.
type Tables struct {
	list []*Table
}

// With adds a table.
func (t *Tables) With(table *Table) { t.list = append(t.list, table) }

// All are the tables.
func (t *Tables) All() []*Table { return t.list }

// Seconds implements plan.Measurements.
func (t *Tables) Seconds(l plan.Layers, c plan.Candidate, s plan.Shape) (float64, bool) {
	for _, table := range t.list {
		if table.Layers == l {
			return table.Seconds(c, s)
		}
	}
	return 0, false
}

// Projection implements plan.Measurements.
func (t *Tables) Projection(l plan.Layers, s plan.Shape) (float64, bool) {
	for _, table := range t.list {
		if table.Layers == l {
			return table.between(table.Projection, s)
		}
	}
	return 0, false
}

// ErrForeign is the kind of error of a table that was measured elsewhere.
var ErrForeign = errors.New("does not hold here")

// Load reads the tables that were stored for kinds of layers with as many threads (0
// is one a core); folder "" is the user's cache folder. A table that there is not is
// left out, and so is one that cannot be used, with the reason.
//
// Of a table counts what was measured of the operators that will run.
func Load(folder string, plugins []*plugin.Plugin, implementations plan.Implementations, threads int,
	kinds ...plan.Layers) (*Tables, []error) {
	tables := &Tables{}
	implementations = implementations.Among(plugin.Manifests(plugins))
	id := Identify(plugins, implementations, threads)
	var reasons []error
	for _, l := range kinds {
		path, err := Path(folder, l, implementations.Named(), id.Threads)
		if err != nil {
			reasons = append(reasons, err)
			continue
		}
		t := &Table{}
		if err = machine.ReadRecord(path, tableVersion, t); errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err == nil {
			if problem := t.check(); problem != nil {
				err = fmt.Errorf("%s %w: %w; remove it, graft tune makes a new one", path, machine.ErrDamaged, problem)
			}
		}
		if err == nil {
			why := id.Differs(t.Machine)
			if why == "" && t.Layers != l {
				why = fmt.Sprintf("it is of %s", t.Layers)
			}
			if why != "" {
				err = fmt.Errorf("%s %w: %s; graft tune makes a new one", path, ErrForeign, why)
			}
		}
		if err != nil {
			reasons = append(reasons, err)
			continue
		}
		t.Rows = slices.DeleteFunc(t.Rows, func(r Row) bool { return r.Implementation != implementations.Of(r.Strategy) })
		tables.With(t)
	}
	return tables, reasons
}

// Save stores a table and says where.
func (t *Table) Save(folder string) (string, error) {
	path, err := Path(folder, t.Layers, t.Named, t.Machine.Threads)
	if err != nil {
		return "", err
	}
	return path, machine.WriteRecord(path, t)
}

// Path is where the table of layers is stored: one file for each shape of layers, set of
// plugins that were named, and number of threads, whatever model they are of.
func Path(folder string, l plan.Layers, named []string, threads int) (string, error) {
	if folder == "" {
		var err error
		if folder, err = storage.CacheFolder(); err != nil {
			return "", err
		}
	}
	positions := l.Positions
	if positions == "" {
		positions = "none"
	}
	name := fmt.Sprintf("%s-%d-layers-%d-of-%d-heads-%d-%d-width-%d-%s-%d-threads",
		l.Type, l.Layers, l.KVHeads, l.Heads, l.HeadSize, l.ValueSize, l.Width, positions, threads)
	for _, plugin := range slices.Sorted(slices.Values(named)) {
		name += "-" + plugin
	}
	return filepath.Join(folder, "tune", name+".json"), nil
}

// Identify is the machine with the plugins that measured times depend on.
func Identify(plugins []*plugin.Plugin, implementations plan.Implementations, threads int) machine.ID {
	names := implementations.Among(plugin.Manifests(plugins)).Plugins()
	if p, _, err := plugin.Provider(plugins, capability.LinearPanels, nil); err == nil {
		names = append(names, p.Manifest.Name)
	}
	return machine.This(plugins, threads, names...)
}
