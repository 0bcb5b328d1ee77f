package hook

import (
	"context"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// off says of values that differ at all that they do.
func off(plain, patched *ort.Value) string {
	a, _ := ort.Data[float32](plain)
	b, _ := ort.Data[float32](patched)
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
		active := *Installed(library)
		active.Same = func(plain, patched *ort.Value) string {
			compared++
			return off(plain, patched)
		}
		install(t, active)
		x := orttest.Session(t, s.plain, session.Options{})
		for range 2 {
			orttest.Expect(t, "one element", orttest.Run(t, x, 1), 2)
			orttest.Expect(t, "more", orttest.Run(t, x, 1, -2), 2, -2)
			orttest.Expect(t, "more", orttest.Run(t, x, 1, -2, 3), 2, -2, 6)
		}
		must.Equal(t, compared, 2)
		x.Close()
		x = orttest.Session(t, s.plain, session.Options{})
		s.how.Store(lies)
		before := Reverted()
		var at *ort.Value
		if place {
			var err error
			if at, err = ort.NewTensor(library, []int64{2}, []float32{7, 7}); err != nil {
				t.Fatal(err)
			}
			defer at.Close()
			must.Value(tryRun(t, x, at, 3, -4))(t)
			y, _ := ort.Data[float32](at)
			orttest.Expect(t, "the place", y, 6, -4)
		} else {
			orttest.Expect(t, "a run that differs", orttest.Run(t, x, 3, -4), 6, -4)
		}
		orttest.Expect(t, "after it", orttest.Run(t, x, 5), 10)
		must.Equal(t, Reverted(), before+1, Reverted()-before)
		s.expectLog(t, 1, "answered otherwise than its model", "y: off")
		x.Close()
		must.Equal(t, hookOf.Of(library).runSites[0].watched.Load(), 0)
	}
}

// TestShadowOfAShare: of runs whose class was compared a share is compared too, and the plain session takes over when
// as many differed as are borne; the program gets its results of each.
func TestShadowOfAShare(t *testing.T) {
	s := stage(t, false)
	active := *Installed(library)
	active.Share, active.Differences = 1, 3
	active.Same = off
	install(t, active)
	x := orttest.Session(t, s.plain, session.Options{})
	s.how.Store(lies)
	before := Reverted()
	runs, different := Shadowed()
	for i := range 5 {
		orttest.Expect(t, "a run that differs", orttest.Run(t, x, 3, -4), 6, -4)
		must.Equal(t, Reverted() > before, (i >= 2), i+1)
	}
	if now, apart := Shadowed(); now-runs != 3 || apart-different != 3 {
		t.Errorf("%d runs compared, %d of them differed, want 3 and 3", now-runs, apart-different)
	}
	s.expectLog(t, 1, "answered otherwise than its model", "differences=3")

	active.Share = 0
	install(t, active)
	s.how.Store(well)
	y := orttest.Session(t, s.plain, session.Options{})
	runs, _ = Shadowed()
	for range 20 {
		orttest.Expect(t, "a run", orttest.Run(t, y, 3, -4), 6, -4)
	}
	if now, _ := Shadowed(); now-runs != 1 {
		t.Errorf("%d runs compared without a share, want the first", now-runs)
	}
}

// BenchmarkRun is the cost of a run of the smallest model: unpatched without a hook, and patched with its way back.
func BenchmarkRun(b *testing.B) {
	loop := func(b *testing.B, x *session.Session) {
		in := must.Value(ort.NewTensor(library, []int64{2}, []float32{1, 2}))(b)
		defer in.Close()
		out := must.Value(ort.NewTensor(library, []int64{2}, []float32{1, 2}))(b)
		defer out.Close()
		inputs, names, results := map[string]*ort.Value{"x": in}, []string{"y"}, []*ort.Value{out}
		for b.Loop() {
			must.Succeed(b, x.RunInto(context.Background(), inputs, names, results))
		}
	}
	content := orttest.Marshal(b, reluTwice("Relu", ""))
	b.Run("no hook", func(b *testing.B) { loop(b, orttest.Session(b, content, session.Options{IntraOpThreads: 1})) })
	patcher := func(way bool) Hook {
		return Hook{Patcher: func(r session.Request) (*session.Patch, error) {
			p := &session.Patch{Model: content}
			if way {
				p.Plain = &session.Plain{Model: func() ([]byte, func() error, error) {
					return content, func() error { return nil },
						nil
				}}
			}
			return p, nil
		}}
	}
	b.Run("a way back", func(b *testing.B) {
		install(b, patcher(true))
		loop(b, orttest.Session(b, content, session.Options{IntraOpThreads: 1}))
	})
	b.Run("watched", func(b *testing.B) {
		install(b, patcher(true))
		x := orttest.Session(b, content, session.Options{IntraOpThreads: 1})
		hookOf.Of(library).watch(1)
		defer hookOf.Of(library).watch(-1)
		loop(b, x)
	})
}
