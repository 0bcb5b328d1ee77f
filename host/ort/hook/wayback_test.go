package hook

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// TestWayBack: where a run of a patched session fails, the program gets the plain model's answer, and from then on that
// session is plain.
func TestWayBack(t *testing.T) {
	for name, how := range map[string]int64{"an error": fails, "a wrong shape": wrongShape} {
		for _, from := range []string{"bytes", "file"} {
			t.Run(name+", from "+from, func(t *testing.T) {
				s := stage(t, false)
				var x *session.Session
				if from == "bytes" {
					x = orttest.Session(t, s.plain, session.Options{IntraOpThreads: 1})
				} else {
					var err error
					path := t.TempDir() + "/m.onnx"
					must.Succeed(t, os.WriteFile(path, s.plain, 0o644))
					if x, err = session.Open(library, path,
						session.Options{IntraOpThreads: 1, Optimization: session.OptimizeBasic}); err != nil {
						t.Fatal(err)
					}
					t.Cleanup(x.Close)
				}
				before := Reverted()
				orttest.Expect(t, "patched", orttest.Run(t, x, 1, -2), 2, -2)
				s.how.Store(how)
				orttest.Expect(t, "the run that failed", orttest.Run(t, x, 3, -4), 6, -4)
				orttest.Expect(t, "after it", orttest.Run(t, x, 5, -6, 7), 10, -6, 14)
				s.how.Store(well)
				orttest.Expect(t, "once it would be well", orttest.Run(t, x, 1, 1), 2, 2)
				if s.opened != 1 || s.closed != 0 || Reverted() != before+1 {
					t.Errorf("the plain model was opened %d times and closed %d times, %d reverted", s.opened, s.closed,
						Reverted()-before)
				}
				s.expectLog(t, 1, "level=WARN", "runs unpatched from now on", "run=repeated")
				x.Close()
				if s.closed != 1 || hookOf.Of(library).runSites[0].watched.Load() != 0 {
					t.Errorf("released %d times, %d watched", s.closed, hookOf.Of(library).runSites[0].watched.Load())
				}
			})
		}
	}
}

// TestWayBackStrict: the error is the program's, and nothing is kept for a way back.
func TestWayBackStrict(t *testing.T) {
	s := stage(t, true)
	x := orttest.Session(t, s.plain, session.Options{})
	s.how.Store(fails)
	must.Fail(t, must.Error(tryRun(t, x, nil, 1)), "made to fail")
	s.how.Store(well)
	orttest.Expect(t, "afterwards", orttest.Run(t, x, 1, -2), 2, -2)
	s.expectLog(t, 0)
	must.Equal(t, s.opened, 0)
}

// tryRun runs with a place for the result.
func tryRun(t testing.TB, s *session.Session, place *ort.Value, x ...float32) (*ort.Value, error) {
	t.Helper()
	in := must.Value(ort.NewTensor(library, []int64{int64(len(x))}, x))(t)
	defer in.Close()
	results := []*ort.Value{place}
	err := s.RunInto(context.Background(), map[string]*ort.Value{"x": in}, []string{"y"}, results)
	if place == nil && results[0] != nil {
		results[0].Close()
	}
	return results[0], err
}

// TestErrorsOfTheProgram: what the plain session returns too is passed on as it words it, what ONNX Runtime refuses
// before it runs and what the program ends needs no plain session, and none of it reverts a session.
func TestErrorsOfTheProgram(t *testing.T) {
	s := stage(t, false)
	x := orttest.Session(t, s.plain, session.Options{})
	in := must.Value(ort.NewTensor(library, []int64{1, 2}, []float32{1, 2}))(t)
	defer in.Close()
	must.Fail(t, must.Error(x.Run(context.Background(), map[string]*ort.Value{"x": in})), "Invalid rank for input: x")
	ints := must.Value(ort.NewTensor(library, []int64{2}, []int64{1, 2}))(t)
	defer ints.Close()
	if _, err := x.Run(context.Background(), map[string]*ort.Value{"x": ints}); err == nil ||
		!strings.Contains(err.Error(), "Unexpected input data type") {
		t.Errorf("a wrong type: got %v", err)
	}
	s.how.Store(fails)
	r := orttest.NewRaw(t)
	made := r.Word()
	must.Succeed(t, library.Try("CreateRunOptions", slot.CreateRunOptions, uintptr(unsafe.Pointer(made))))
	options := *made
	defer library.Call(slot.ReleaseRunOptions, options)
	must.Succeed(t, library.Try("RunOptionsSetTerminate", slot.RunOptionsSetTerminate, options))
	in1, _ := ort.NewTensor(library, []int64{2}, []float32{1, 2})
	defer in1.Close()
	names, values, outs, places := []uintptr{r.Text("x")}, []uintptr{in1.Native()}, []uintptr{r.Text("y")}, []uintptr{0}
	err := library.Try("Run", slot.Run, x.Native(), options, orttest.Address(names), orttest.Address(values), 1,
		orttest.Address(outs), 1,
		orttest.Address(places))
	must.Fail(t, err, "terminate flag")
	must.Equal(t, s.opened, 0)

	// A place of the wrong shape is refused by both, in the plain session's words.
	place := must.Value(ort.NewTensor(library, []int64{3}, []float32{0, 0, 0}))(t)
	defer place.Close()
	s.how.Store(well)
	unpatched := orttest.Session(t, s.plain, session.Options{Unpatched: true})
	_, want := tryRun(t, unpatched, place, 1, 2)
	for range 2 {
		must.FailExactly(t, must.Error(tryRun(t, x, place, 1, 2)), want.Error())
	}
	must.Equal(t, s.opened, 1)
	orttest.Expect(t, "afterwards", orttest.Run(t, x, 1, -2), 2, -2)
	s.expectLog(t, 0)
	s.how.Store(fails)
	orttest.Expect(t, "a failure afterwards", orttest.Run(t, x, 1, -2), 2, -2)
	s.expectLog(t, 1)
}

// TestNoWayBack: where the program's model is there no more, the operator's error is passed on, with one warning.
func TestNoWayBack(t *testing.T) {
	s := stage(t, false)
	x := orttest.Session(t, s.plain, session.Options{})
	s.how.Store(fails)
	s.fault = errors.New("the file was replaced")
	for range 3 {
		must.Fail(t, must.Error(tryRun(t, x, nil, 1)), "made to fail")
	}
	s.expectLog(t, 1, "the file was replaced", "made to fail")
	s.fault, s.changed = nil, errors.New("it changed meanwhile")
	if _, err := tryRun(t, x, nil, 1); err == nil || hookOf.Of(library).backs.of(x.Native()).session.Load() != 0 {
		t.Errorf("a model that changed while it was opened: %v", err)
	}
	s.changed = nil
	orttest.Expect(t, "once it is there again", orttest.Run(t, x, 1, -2), 2, -2)
}

// TestPlacesOfTheProgram: places for outputs are written over by the repeated run, also where the failed one wrote to
// them. A place in the memory of an input cannot be: that run is lost, and none after it.
func TestPlacesOfTheProgram(t *testing.T) {
	s := stage(t, false)
	x := orttest.Session(t, s.plain, session.Options{})
	place := must.Value(ort.NewTensor(library, []int64{2}, []float32{50, 50}))(t)
	defer place.Close()
	s.how.Store(fails)
	must.Value(tryRun(t, x, place, 3, -4))(t)
	y, _ := ort.Data[float32](place)
	orttest.Expect(t, "the place", y, 6, -4)

	s = stage(t, false)
	x = orttest.Session(t, s.plain, session.Options{})
	s.how.Store(fails)
	for i, want := range []bool{false, true} {
		err := x.RunInto(context.Background(), map[string]*ort.Value{"x": place}, []string{"y"}, []*ort.Value{place})
		must.Equal(t, err == nil, want, i)
	}
	s.expectLog(t, 1, "an output lies in the memory of an input")
}

// TestWayBackOfBindings: the program's binding of the patched session serves the plain one.
func TestWayBackOfBindings(t *testing.T) {
	for _, where := range []string{"a place", "memory of ONNX Runtime's", "the input's memory"} {
		t.Run(where, func(t *testing.T) {
			s := stage(t, false)
			x := orttest.Session(t, s.plain, session.Options{})
			b, err := x.NewBinding()
			must.Succeed(t, err)
			defer b.Close()
			in := must.Value(ort.NewTensor(library, []int64{2}, []float32{3, -4}))(t)
			defer in.Close()
			out := must.Value(ort.NewTensor(library, []int64{2}, []float32{50, 50}))(t)
			defer out.Close()
			must.Succeed(t, b.Input("x", in))
			switch where {
			case "a place":
				err = b.Output("y", out)
			case "the input's memory":
				err = b.Output("y", in)
			default:
				var m *ort.Memory
				if m, err = library.Memory("Cpu", 0); err == nil {
					err = b.OutputTo("y", m)
				}
			}
			must.Succeed(t, err)
			if where != "the input's memory" {
				must.Succeed(t, b.Run(context.Background()))
			}
			s.how.Store(fails)
			err = b.Run(context.Background())
			if where == "the input's memory" {
				if err == nil {
					t.Error("a run in place was repeated")
				}
				s.expectLog(t, 1, "an output lies in the memory of an input")
				return
			}
			must.Succeed(t, err)
			got := must.Value(b.Outputs())(t)
			defer got["y"].Close()
			y, _ := ort.Data[float32](got["y"])
			orttest.Expect(t, "bound", y, 6, -4)
			s.expectLog(t, 1, "run=repeated")
			must.Succeed(t, b.Run(context.Background()))
		})
	}
}

// TestWayBackConcurrently: many threads see one session fail; one plain session is made, and no run is lost.
func TestWayBackConcurrently(t *testing.T) {
	s := stage(t, false)
	x := orttest.Session(t, s.plain, session.Options{IntraOpThreads: 1})
	var group sync.WaitGroup
	for g := range 8 {
		group.Go(func() {
			for i := range 50 {
				if g == 0 && i == 10 {
					s.how.Store(fails)
				}
				in, err := ort.NewTensor(library, []int64{2}, []float32{float32(i), -4})
				if err != nil {
					t.Error(err)
					return
				}
				results, err := x.Run(context.Background(), map[string]*ort.Value{"x": in})
				if err != nil {
					t.Error(err)
					return
				}
				if y, err := ort.Data[float32](results[0]); err != nil || y[0] != 2*float32(i) || y[1] != -4 {
					t.Errorf("got %v, %v", y, err)
				}
				ort.CloseAll(results)
				in.Close()
			}
		})
	}
	group.Wait()
	must.Equal(t, s.opened, 1)
	s.expectLog(t, 1)
}

// TestWayBackOfAsync: the program's function is called once, with the plain session's results.
func TestWayBackOfAsync(t *testing.T) {
	s := stage(t, false)
	x := orttest.Session(t, s.plain, session.Options{IntraOpThreads: 2})
	r := orttest.NewRaw(t)
	type ended struct {
		user, outputs, n uintptr
		err              error
	}
	calls := make(chan ended, 9)
	function := purego.NewCallback(func(user, outputs, n, status uintptr) {
		calls <- ended{user, outputs, n, library.TakeStatus("RunAsync", status)}
	})
	start := func(data []float32, rank ...int64) (e ended, y []float32) {
		t.Helper()
		in := must.Value(ort.NewTensor(library, append(rank, int64(len(data))), data))(t)
		defer in.Close()
		names, values, outs, places := []uintptr{r.Text("x")}, []uintptr{in.Native()}, []uintptr{r.Text("y")}, []uintptr{0}
		r.Pins = append(r.Pins, names, values, outs, places)
		if err := library.Try("RunAsync", slot.RunAsync, x.Native(), 0, orttest.Address(names), orttest.Address(values), 1,
			orttest.Address(outs), 1,
			orttest.Address(places), function, 77); err != nil {
			t.Fatal(err)
		}
		select {
		case e = <-calls:
		case <-time.After(time.Minute):
			t.Fatal("the function was not called")
		}
		if e.err != nil {
			return e, nil
		}
		if e.user != 77 || e.n != 1 || e.outputs == 0 {
			t.Fatalf("called with %+v", e)
		}
		v := must.Value(ort.OwnValue(library, cmem.LoadWord(e.outputs, 0)))(t)
		defer v.Close()
		y, _ = ort.Data[float32](v)
		return e, append([]float32(nil), y...)
	}
	_, y := start([]float32{1, -2})
	orttest.Expect(t, "patched", y, 2, -2)
	s.how.Store(fails)
	if e, _ := start([]float32{1, -2}, 1); e.err == nil || !strings.Contains(e.err.Error(), "Invalid rank") {
		t.Errorf("a wrong rank: %+v", e)
	}
	_, y = start([]float32{3, -4})
	orttest.Expect(t, "the run that failed", y, 6, -4)
	_, y = start([]float32{5, -6})
	orttest.Expect(t, "after it", y, 10, -6)
	s.expectLog(t, 1, "run=repeated")
	if len(calls) > 0 {
		t.Error("the function was called again")
	}
}

// TestWayBackAfterUninstall: sessions that were patched have their way back until they are released, and then ONNX
// Runtime has its own functions.
func TestWayBackAfterUninstall(t *testing.T) {
	own := library.Function(slot.Run)
	s := stage(t, false)
	x, other := orttest.Session(t, s.plain, session.Options{}), orttest.Session(t, s.plain, session.Options{})
	must.Succeed(t, Uninstall(library))
	s.how.Store(fails)
	orttest.Expect(t, "the run that failed", orttest.Run(t, x, 3, -4), 6, -4)
	orttest.Expect(t, "after it", orttest.Run(t, x, 5, -6), 10, -6)
	orttest.Expect(t, "a session made afterwards", orttest.Run(t, orttest.Session(t, s.plain, session.Options{}), 1, -2),
		2, -2)
	x.Close()
	if library.Function(slot.Run) == own {
		t.Error("a session that is there lost its way back")
	}
	other.Close()
	if library.Function(slot.Run) != own || !hookOf.Of(library).backs.none() {
		t.Error("the functions were not put back after the last session")
	}
	s.expectLog(t, 1)
}
