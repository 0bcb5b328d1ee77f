package tune

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/internal/must"
)

// load opens plugins of those just built.
func load(t *testing.T, names ...string) []*plugin.Plugin {
	t.Helper()
	var list []*plugin.Plugin
	for _, name := range names {
		folder := must.Value(filepath.Abs("../../../build/plugins/" + name))(t)
		p, err := plugin.Open(folder, plugin.OpenOptions{AcceptUnverified: true})
		if err != nil {
			t.Fatalf("%v: run make plugins", err)
		}
		list = append(list, p)
	}
	return list
}

// measureUntil measures until the times grow as they must, at most five times: a machine
// that is busy with something else may pause for the whole of a short shape.
func measureUntil(t *testing.T, l plan.Layers, o *Options, grows func(*Table) bool) (got *Table) {
	t.Helper()
	for range 5 {
		var err error
		if got, err = Measure(context.Background(), l, *o); err != nil {
			t.Fatal(err)
		}
		if grows(got) {
			break
		}
	}
	return got
}

func TestMeasure(t *testing.T) {
	r := plan.Range{Keys: [2]int64{16, 512}, Own: [2]int64{1, 2}, Beams: [2]int64{1, 2}, Batch: [2]int64{1, 1}}
	last := int64(0)
	o := Options{Plugins: load(t, "flash-decode"), Range: r, Repeats: 3, Progress: func(done, total int64) {
		if done != last%12+1 || total != 12 {
			t.Errorf("%d of %d after %d", done, total, last)
		}
		last = done
	}}
	got := measureUntil(t, layers, &o, func(got *Table) bool {
		return slices.Max(got.Rows[0].Seconds) > got.Rows[0].Seconds[0]
	})
	if err := got.check(); err != nil || last != 12 || len(got.Rows) != 1 || got.Rows[0].Strategy != plan.KeysValues {
		t.Errorf("%d shapes, %+v, %v", last, got, err)
	}
	must.Value(got.Save(t.TempDir()))(t)
	small, large := got.Rows[0].Seconds[0], slices.Max(got.Rows[0].Seconds)
	if large <= small {
		t.Errorf("the smallest shape takes %g s, the longest %g", small, large)
	}
	if got.Projection != nil {
		t.Errorf("without the plugin of linear layers they take %v", got.Projection)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	o.Progress = nil
	must.Fail(t, must.Error(Measure(ctx, layers, o)), context.Canceled)
	o.MaxBytes = 1000
	must.Fail(t, must.Error(Measure(context.Background(), layers, o)), "to be measured, 1000 are free")
	o.Plugins = nil
	o.MaxBytes = 0
	must.Fail(t, must.Error(Measure(context.Background(), layers, o)), "no plugin that can run it is loaded")
}

// Linear layers that make keys and values are timed beside the operators: of a step's rows,
// or of an encoder's output.
func TestMeasureProjections(t *testing.T) {
	wide := plan.Layers{Type: "cross", Layers: 2, Heads: 4, KVHeads: 4, HeadSize: 64, ValueSize: 64, Width: 256}
	r := plan.Range{Keys: [2]int64{16, 1024}, Beams: [2]int64{1, 2}, Batch: [2]int64{1, 2}}
	for _, c := range []struct {
		kind  string
		grows plan.Shape // in what it takes longer
	}{{"cross", plan.Shape{Keys: 1024, Beams: 1, Batch: 1}}, {"self", plan.Shape{Keys: 16, Beams: 2, Batch: 32}}} {
		wide.Type = c.kind
		o := Options{Plugins: load(t, "flash-decode", "packed-linear"), Range: r, Repeats: 3}
		if c.kind == "self" {
			o.Range.Keys[1], o.Range.Batch[1] = 32, 32
		}
		smallest := plan.Shape{Keys: 16, Beams: 1, Batch: 1}
		got := measureUntil(t, wide, &o, func(got *Table) bool {
			small, _ := got.between(got.Projection, smallest)
			large, _ := got.between(got.Projection, c.grows)
			return large > small
		})
		if err := got.check(); err != nil || len(got.Projection) != got.Axes.Size() {
			t.Fatalf("%s: %d times of projections, %v", c.kind, len(got.Projection), err)
		}
		small, ok := got.between(got.Projection, smallest)
		large, ok2 := got.between(got.Projection, c.grows)
		if !ok || !ok2 || large <= small {
			t.Errorf("%s: projections take %g s at least, %g at %+v", c.kind, small, large, c.grows)
		}
		more, _ := got.between(got.Projection, plan.Shape{Keys: 16, Beams: 2, Batch: 2})
		if c.kind == "cross" && more != small {
			t.Errorf("one encoder's output takes %g s for one beam, %g for more", small, more)
		}
	}
}

func TestAxes(t *testing.T) {
	r := plan.Range{Keys: [2]int64{16, 1024}, Own: [2]int64{1, 64}, Beams: [2]int64{1, 8}, Batch: [2]int64{1, 16}}
	cross := layers
	cross.Type = "cross"
	for _, c := range []struct {
		layers plan.Layers
		want   Axes
	}{
		{layers, Axes{[]int64{16, 128, 1024}, []int64{1, 8, 64}, []int64{1, 4, 8}, []int64{1, 4, 16}}},
		{cross, Axes{[]int64{16, 64, 256, 1024}, []int64{0}, []int64{1, 2, 4, 8}, []int64{1, 4, 16}}},
	} {
		got := axesOf(c.layers, r)
		for i, list := range got.lists() {
			must.Equal(t, list, c.want.lists()[i], c.layers.Type)
		}
	}
	one := axesOf(cross, plan.Range{Keys: [2]int64{1500, 1500}, Beams: [2]int64{3, 3}, Batch: [2]int64{1, 1}})
	if one.Size() != 1 || one.Shape(0) != (plan.Shape{Keys: 1500, Beams: 3, Batch: 1}) {
		t.Errorf("a range of one shape is %+v", one)
	}
	a := axesOf(layers, r)
	if err := shrink(&a, layers, candidates(plan.Implementations{})[:1], 3, 10<<20); err != nil ||
		!slices.Equal(a.Batch, []int64{1, 4}) {
		t.Errorf("in 10 MiB batches are %v, %v", a.Batch, err)
	}
}
