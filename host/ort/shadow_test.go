package ort

import (
	"context"
	"slices"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// off says of values that differ at all that they do.
func off(plain, patched *Value) string {
	a, _ := Data[float32](plain)
	b, _ := Data[float32](patched)
	if slices.Equal(a, b) {
		return ""
	}
	return "off"
}

// TestShadow: the first run of each class of shapes is compared, and where it differs the program gets the plain
// session's results, also in places of its own.
func TestShadow(t *testing.T) {
	for _, place := range []bool{false, true} {
		s := stage(t, false)
		compared := 0
		active := *library.Installed()
		active.Same = func(plain, patched *Value) string {
			compared++
			return off(plain, patched)
		}
		install(t, active)
		x := session(t, s.plain, SessionOptions{})
		for range 2 {
			expect(t, "one element", run(t, x, 1), 2)
			expect(t, "more", run(t, x, 1, -2), 2, -2)
			expect(t, "more", run(t, x, 1, -2, 3), 2, -2, 6)
		}
		if compared != 2 {
			t.Errorf("%d runs were compared, want 2", compared)
		}
		x.Close()
		x = session(t, s.plain, SessionOptions{})
		s.how.Store(lies)
		before := Reverted()
		var at *Value
		if place {
			var err error
			if at, err = NewTensor(library, []int64{2}, []float32{7, 7}); err != nil {
				t.Fatal(err)
			}
			defer at.Close()
			must.Value(tryRun(t, x, at, 3, -4))(t)
			y, _ := Data[float32](at)
			expect(t, "the place", y, 6, -4)
		} else {
			expect(t, "a run that differs", run(t, x, 3, -4), 6, -4)
		}
		expect(t, "after it", run(t, x, 5), 10)
		if Reverted() != before+1 {
			t.Errorf("%d reverted", Reverted()-before)
		}
		s.expectLog(t, 1, "answered otherwise than its model", "y: off")
		x.Close()
		if n := library.hook.runSites[0].watched.Load(); n != 0 {
			t.Errorf("%d are watched", n)
		}
	}
}

// TestShadowOfAShare: of runs whose class was compared a share is compared too, and the plain session takes over when
// as many differed as are borne; the program gets its results of each.
func TestShadowOfAShare(t *testing.T) {
	s := stage(t, false)
	active := *library.Installed()
	active.Share, active.Differences = 1, 3
	active.Same = off
	install(t, active)
	x := session(t, s.plain, SessionOptions{})
	s.how.Store(lies)
	before := Reverted()
	runs, different := Shadowed()
	for i := range 5 {
		expect(t, "a run that differs", run(t, x, 3, -4), 6, -4)
		if reverted := Reverted() > before; reverted != (i >= 2) {
			t.Errorf("after %d runs it is %t that the session reverted", i+1, reverted)
		}
	}
	if now, apart := Shadowed(); now-runs != 3 || apart-different != 3 {
		t.Errorf("%d runs compared, %d of them differed, want 3 and 3", now-runs, apart-different)
	}
	s.expectLog(t, 1, "answered otherwise than its model", "differences=3")

	active.Share = 0
	install(t, active)
	s.how.Store(well)
	y := session(t, s.plain, SessionOptions{})
	runs, _ = Shadowed()
	for range 20 {
		expect(t, "a run", run(t, y, 3, -4), 6, -4)
	}
	if now, _ := Shadowed(); now-runs != 1 {
		t.Errorf("%d runs compared without a share, want the first", now-runs)
	}
}

// BenchmarkRun is the cost of a run of the smallest model: unpatched without a hook, and patched with its way back.
func BenchmarkRun(b *testing.B) {
	loop := func(b *testing.B, x *Session) {
		in := must.Value(NewTensor(library, []int64{2}, []float32{1, 2}))(b)
		defer in.Close()
		out := must.Value(NewTensor(library, []int64{2}, []float32{1, 2}))(b)
		defer out.Close()
		inputs, names, results := map[string]*Value{"x": in}, []string{"y"}, []*Value{out}
		for b.Loop() {
			must.Succeed(b, x.RunInto(context.Background(), inputs, names, results))
		}
	}
	content := marshal(b, reluTwice("Relu", ""))
	b.Run("no hook", func(b *testing.B) { loop(b, session(b, content, SessionOptions{IntraOpThreads: 1})) })
	patcher := func(way bool) Hook {
		return Hook{Patcher: func(r Request) (*Patch, error) {
			p := &Patch{Model: content}
			if way {
				p.Plain = &Plain{Model: func() ([]byte, func() error, error) { return content, func() error { return nil }, nil }}
			}
			return p, nil
		}}
	}
	b.Run("a way back", func(b *testing.B) {
		install(b, patcher(true))
		loop(b, session(b, content, SessionOptions{IntraOpThreads: 1}))
	})
	b.Run("watched", func(b *testing.B) {
		install(b, patcher(true))
		x := session(b, content, SessionOptions{IntraOpThreads: 1})
		library.hook.watch(1)
		defer library.hook.watch(-1)
		loop(b, x)
	})
}
