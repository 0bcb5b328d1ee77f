package tune

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/machine"
	"github.com/opgraft/graft/internal/must"
)

var layers = plan.Layers{Type: "self", Layers: 5, Heads: 4, KVHeads: 4, HeadSize: 8, ValueSize: 8, Width: 32,
	Positions: "learned"}

// made is a table whose times are powers of what a shape has, which logarithms make
// straight lines of.
func made() *Table {
	t := &Table{SchemaVersion: tableVersion, Machine: Identify(nil, plan.Implementations{}, 0), Layers: layers,
		Axes: Axes{Keys: []int64{16, 64, 1024}, Own: []int64{0, 31}, Beams: []int64{1, 4}, Batch: []int64{1, 16}}}
	for _, strategy := range []plan.Strategy{plan.KeysValues, plan.PromptHiddenStates} {
		r := Row{Strategy: strategy, Implementation: plan.Implementations{}.Of(strategy)}
		for i := range t.Axes.Size() {
			r.Seconds = append(r.Seconds, law(t.Axes.Shape(i))*times[strategy])
		}
		t.Rows = append(t.Rows, r)
	}
	return t
}

// times are how much longer than law each strategy takes.
var times = map[plan.Strategy]float64{plan.KeysValues: 1, plan.PromptHiddenStates: 2}

func law(s plan.Shape) float64 {
	power := func(x int64, p float64) float64 { return math.Pow(float64(1+x), p) }
	return 1e-6 * power(s.Keys, 1) * power(s.Own, 0.25) * power(s.Beams, 0.5) * power(s.Batch, 0.75)
}

func TestBetweenTheGrid(t *testing.T) {
	table := made()
	flash, hidden := plan.Candidate{Strategy: plan.KeysValues},
		plan.Candidate{Strategy: plan.PromptHiddenStates, Storage: plan.Float32}
	for _, s := range []plan.Shape{
		{Keys: 16, Own: 0, Beams: 1, Batch: 1}, {Keys: 1024, Own: 31, Beams: 4, Batch: 16},
		{Keys: 64, Own: 31, Beams: 1, Batch: 16},
		{Keys: 700, Own: 0, Beams: 2, Batch: 5}, {Keys: 17, Own: 3, Beams: 3, Batch: 15},
	} {
		for i, c := range []plan.Candidate{flash, hidden} {
			want := law(s) * times[c.Strategy]
			if got, ok := table.Seconds(c, s); !ok || math.Abs(got/want-1) > 1e-9 {
				t.Errorf("%d, %+v: %g, %v; want %g", i, s, got, ok, want)
			}
		}
	}
	for _, s := range []plan.Shape{
		{Keys: 15, Beams: 1, Batch: 1}, {Keys: 1025, Beams: 1, Batch: 1}, {Keys: 16, Own: 32, Beams: 1, Batch: 1},
		{Keys: 16, Beams: 5, Batch: 1}, {Keys: 16, Beams: 1, Batch: 17},
	} {
		if got, ok := table.Seconds(flash, s); ok {
			t.Errorf("%+v lies outside and gives %g", s, got)
		}
	}
	for _, c := range []plan.Candidate{{Strategy: plan.Keys}, {Strategy: plan.PromptHiddenStates, Storage: plan.Float16}} {
		if got, ok := table.Seconds(c, table.Axes.Shape(0)); ok {
			t.Errorf("%s was not measured and gives %g", c, got)
		}
	}
	var tables Tables
	tables.With(table)
	s := plan.Shape{Keys: 700, Own: 5, Beams: 2, Batch: 5}
	must.Equal(t, testing.AllocsPerRun(100, func() { tables.Seconds(layers, hidden, s) }), 0)
	if got, ok := tables.Projection(layers, s); ok {
		t.Errorf("projections that were not measured take %g", got)
	}
	table.Projection = table.Rows[0].Seconds
	if got, ok := tables.Projection(layers, s); !ok || math.Abs(got/law(s)-1) > 1e-9 {
		t.Errorf("projections take %g, %v; want %g", got, ok, law(s))
	}
	other := layers
	other.Layers++
	if _, ok := tables.Seconds(other, flash, s); ok {
		t.Error("a table of other layers was used")
	}
	if got := plan.NewPredictor(plan.ThisMachine(), nil, plan.Implementations{}, &tables).Predict(layers, hidden,
		s); !got.Measured || got.Seconds <= law(s)*times[plan.PromptHiddenStates] {
		t.Errorf("a predictor makes %+v of it", got)
	}
}

func TestTablesAreStored(t *testing.T) {
	folder := t.TempDir()
	table := made()
	path := must.Value(table.Save(folder))(t)
	load := func() (*Tables, []error) { return Load(folder, nil, plan.Implementations{}, 0, layers) }
	got, reasons := load()
	if len(reasons) > 0 || len(got.All()) != 1 || got.All()[0].Rows[1].Seconds[3] != table.Rows[1].Seconds[3] {
		t.Fatalf("loaded %+v, %v", got, reasons)
	}
	whole := must.Value(os.ReadFile(path))(t)
	change := func(from, to string) string {
		if !strings.Contains(string(whole), from) {
			t.Fatalf("the file has no %q", from)
		}
		return strings.Replace(string(whole), from, to, 1)
	}
	for _, c := range []struct {
		what, text string
		kind       error
		want       string
	}{
		{"truncated", string(whole[:len(whole)-40]), machine.ErrDamaged, "unexpected end of JSON input"},
		{"of another machine", change(`"cores": `, `"cores": 7`), ErrForeign, "it is of another machine"},
		{"of another build", change(`"plugins": {}`, `"plugins": {"flash-decode": "00"}`), nil, ""},
		{"with another grid", change(`"beams": [`, `"beams": [0,`), machine.ErrDamaged, "times, the grid"},
		{"with a grid that does not ascend", change(`"own": [`, `"own": [9,`), machine.ErrDamaged,
			"numbers of 0 or more that ascend"},
		{"of other layers", change(`"width": 32`, `"width": 33`), ErrForeign,
			"it is of 5 layers of self attention, 4 heads of 8 (4 of keys), width 33"},
		{"of another version", change(`"schema_version": 3`, `"schema_version": 1`), machine.ErrDamaged,
			"found schema_version 1, need 3"},
	} {
		must.Succeed(t, os.WriteFile(path, []byte(c.text), 0o644))
		got, reasons := load()
		if c.kind == nil {
			if len(reasons) > 0 || len(got.All()) != 1 {
				t.Errorf("%s: %v", c.what, reasons)
			}
			continue
		}
		if len(got.All()) != 0 || len(reasons) != 1 || !errors.Is(reasons[0], c.kind) ||
			!strings.Contains(reasons[0].Error(), c.want) || !strings.HasPrefix(reasons[0].Error(), path) {
			t.Errorf("%s: loaded %d tables, %v; want %q", c.what, len(got.All()), reasons, c.want)
		}
	}
	if got, reasons := Load(t.TempDir(), nil, plan.Implementations{}, 0, layers); len(got.All()) != 0 || reasons != nil {
		t.Errorf("of an empty folder: %v, %v", got.All(), reasons)
	}
	if got, reasons := Load(folder, nil, plan.Implementations{}, 7, layers); len(got.All()) != 0 || reasons != nil {
		t.Errorf("with other threads: %v, %v", got.All(), reasons)
	}
}

// Another build of a plugin takes other times.
func TestForeignPlugins(t *testing.T) {
	folder := t.TempDir()
	table := made()
	table.Machine = machine.This(nil, 0)
	table.Machine.Plugins = map[string]string{"flash-decode": "00"}
	must.Value(table.Save(folder))(t)
	if _, reasons := Load(folder, load(t, "flash-decode"), plan.Implementations{}, 0, layers); len(reasons) != 1 ||
		!strings.HasSuffix(reasons[0].Error(),
			"does not hold here: it was measured with another build of the plugin flash-decode; graft tune makes a new one") {
		t.Errorf("got %v", reasons)
	}
}
