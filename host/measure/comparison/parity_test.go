package comparison

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
)

func floats(t *testing.T, shape []int64, data ...float32) *ort.Value {
	t.Helper()
	v := must.Value(ort.NewTensor(library(t), shape, data))(t)
	t.Cleanup(func() { v.Close() })
	return v
}

func TestCompareFloats(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	cases := []struct {
		name               string
		a, b               []float32
		absolute, relative float64
		ok                 bool
		disagree           int64
		problem            string
	}{
		{name: "equal", a: []float32{1, -2, 0}, b: []float32{1, -2, 0}, ok: true},
		{name: "zeros of both signs", a: []float32{0}, b: []float32{float32(math.Copysign(0, -1))}, ok: true},
		{name: "NaN is NaN", a: []float32{nan, 1}, b: []float32{nan, 1}, ok: true},
		{name: "NaN in b", a: []float32{1, 1}, b: []float32{nan, 1}, disagree: 1,
			problem: "1 of 2 elements are NaN or infinite"},
		{name: "NaN in a", a: []float32{nan, nan}, b: []float32{1, 2}, disagree: 2, problem: "2 of 2 elements"},
		{name: "infinity is itself", a: []float32{inf, -inf}, b: []float32{inf, -inf}, ok: true},
		{name: "infinities of two signs", a: []float32{inf}, b: []float32{-inf}, disagree: 1, problem: "infinite"},
		{name: "infinity in b", a: []float32{3e38}, b: []float32{inf}, disagree: 1, problem: "infinite"},
		{name: "at the edge", a: []float32{2}, b: []float32{2.5}, absolute: 0.25, relative: 0.125, ok: true},
		{name: "over the edge", a: []float32{2}, b: []float32{2.5009766}, absolute: 0.25, relative: 0.125, disagree: 1},
		{name: "relative to a", a: []float32{1}, b: []float32{2}, absolute: 1e-30, relative: 0.6, disagree: 1},
		{name: "relative to a the other way", a: []float32{2}, b: []float32{1}, absolute: 1e-30, relative: 0.6, ok: true},
		{name: "absolute alone leaves the standard relative", a: []float32{1000}, b: []float32{1000.09}, absolute: 1e-9,
			ok: true},
		{name: "relative alone leaves the standard absolute", a: []float32{0}, b: []float32{9e-6}, relative: 1e-9, ok: true},
		{name: "standard", a: []float32{1}, b: []float32{1.0002}, disagree: 1},
		{name: "nothing", a: []float32{}, b: []float32{}, ok: true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			shape := []int64{int64(len(c.a))}
			got := CompareValues("y", floats(t, shape, c.a...), floats(t, shape, c.b...), c.absolute, c.relative)
			if got.OK != c.ok || got.Disagree != c.disagree {
				t.Errorf("ok %v with %d apart, want %v with %d: %+v", got.OK, got.Disagree, c.ok, c.disagree, got)
			}
			if c.problem == "" && got.Problem != "" || !strings.Contains(got.Problem, c.problem) {
				t.Errorf("problem %q, want %q", got.Problem, c.problem)
			}
			must.Value(json.Marshal(got))(t, "no JSON")
		})
	}
}

func TestCompareFigures(t *testing.T) {
	a, b := make([]float32, 200), make([]float32, 200)
	for i := range a {
		a[i] = 4
		b[i] = 4 + float32(i)/1024
	}
	got := CompareValues("y", floats(t, []int64{200}, a...), floats(t, []int64{200}, b...), 1, 0)
	if got.MaxAbsolute != 199.0/1024 || got.MaxRelative != 199.0/4096 || got.P50 != 100.0/1024 || got.P99 != 197.0/1024 {
		t.Errorf("%+v", got)
	}
	if got.Top1 != nil {
		t.Errorf("top-1 agreement %g of a vector", *got.Top1)
	}
}

func TestCompareTop1(t *testing.T) {
	nan := float32(math.NaN())
	cases := []struct {
		name  string
		shape []int64
		a, b  []float32
		want  float64
	}{
		{"same places", []int64{2, 3}, []float32{1, 5, 2, 9, 0, 0}, []float32{2, 6, 3, 1, 0, 0}, 1},
		{"half", []int64{2, 3}, []float32{1, 5, 2, 9, 0, 0}, []float32{7, 6, 3, 1, 0, 0}, 0.5},
		{"three axes", []int64{2, 1, 2}, []float32{1, 2, 1, 2}, []float32{2, 1, 2, 1}, 0},
		{"NaN is never the largest", []int64{1, 3}, []float32{0, nan, 1}, []float32{0, 0.5, 1}, 1},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := CompareValues("y", floats(t, c.shape, c.a...), floats(t, c.shape, c.b...), 0, 0)
			if got.Top1 == nil || *got.Top1 != c.want {
				t.Errorf("top-1 %v, want %g", got.Top1, c.want)
			}
		})
	}
}

func TestCompareOtherKinds(t *testing.T) {
	l := library(t)
	keep := func(v *ort.Value, err error) *ort.Value {
		t.Helper()
		must.Succeed(t, err)
		t.Cleanup(func() { v.Close() })
		return v
	}
	x := floats(t, []int64{2}, 1, 2)
	cases := []struct {
		name    string
		a, b    *ort.Value
		ok      bool
		problem string
	}{
		{"shapes", x, floats(t, []int64{1, 2}, 1, 2), false, "a is float32[2], b float32[1 2]"},
		{"types", x, keep(ort.NewTensor(l, []int64{2}, []float64{1, 2})), false, "a is float32[2], b float64[2]"},
		{"integers equal", keep(ort.NewTensor(l, []int64{2}, []int64{1, 2})),
			keep(ort.NewTensor(l, []int64{2}, []int64{1, 2})), true, ""},
		{"integers differ by one", keep(ort.NewTensor(l, []int64{2}, []int64{1 << 40, 2})),
			keep(ort.NewTensor(l, []int64{2}, []int64{1<<40 + 1, 2})), false, ""},
		{"booleans", keep(ort.NewTensor(l, []int64{2}, []bool{true, false})),
			keep(ort.NewTensor(l, []int64{2}, []bool{true, true})), false, ""},
		{"strings", keep(l.NewStrings([]int64{1}, []string{"a"})), keep(l.NewStrings([]int64{1}, []string{"a"})), true, ""},
		{"strings differ", keep(l.NewStrings([]int64{1}, []string{"a"})), keep(l.NewStrings([]int64{1}, []string{"b"})),
			false, ""},
		{"sequence and tensor", keep(l.NewSequence([]*ort.Value{floats(t, []int64{1}, 1)})), x, false,
			"a is a sequence, b a tensor"},
		{"sequences", keep(l.NewSequence([]*ort.Value{floats(t, []int64{1}, 1)})),
			keep(l.NewSequence([]*ort.Value{floats(t, []int64{1}, 1)})), true, ""},
		{"sequences differ", keep(l.NewSequence([]*ort.Value{floats(t, []int64{1}, 1)})),
			keep(l.NewSequence([]*ort.Value{floats(t, []int64{1}, 2)})), false, "y[0] differs"},
		{"sequences of two lengths", keep(l.NewSequence([]*ort.Value{floats(t, []int64{1}, 1)})),
			keep(l.NewSequence([]*ort.Value{floats(t, []int64{1}, 1), floats(t, []int64{1}, 1)})), false,
			"sequences of 1 and 2 items"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := CompareValues("y", c.a, c.b, 0, 0)
			if got.OK != c.ok || got.Problem != c.problem {
				t.Errorf("ok %v, problem %q, want %v, %q", got.OK, got.Problem, c.ok, c.problem)
			}
		})
	}
	got := CompareValues("y", cases[3].a, cases[3].b, 100, 100)
	if got.OK || got.Disagree != 1 || got.Absolute != 0 {
		t.Errorf("integers within a tolerance: %+v, want them to differ", got)
	}
}

func TestTolerance(t *testing.T) {
	for e, want := range map[ort.ElementType][2]float64{
		ort.Float32: {1e-5, 1e-4}, ort.Float64: {1e-5, 1e-4}, ort.Float16: {2.5e-3, 1e-3}, ort.BFloat16: {2e-2, 1e-2},
		ort.Int64: {},
	} {
		if a, r := Tolerance(e); [2]float64{a, r} != want {
			t.Errorf("%s: %g and %g, want %v", e, a, r, want)
		}
	}
}

// TestReader: numbers are read as they were written, integers are not read.
func TestReader(t *testing.T) {
	le := binary.LittleEndian
	for element, write := range map[ort.ElementType]func(b []byte, x float64) []byte{
		ort.Float32: func(b []byte, x float64) []byte { return le.AppendUint32(b, math.Float32bits(float32(x))) },
		ort.Float64: func(b []byte, x float64) []byte { return le.AppendUint64(b, math.Float64bits(x)) },
		ort.BFloat16: func(b []byte,
			x float64) []byte {
			return le.AppendUint16(b, uint16(math.Float32bits(float32(x))>>16))
		},
		ort.Float16: func(b []byte, x float64) []byte {
			return le.AppendUint16(b, map[float64]uint16{0: 0, 1: 0x3c00, -2.5: 0xc100, 0.09375: 0x2e00, -96: 0xd600}[x])
		},
	} {
		var data []byte
		want := []float64{0, 1, -2.5, 0.09375, -96}
		for _, x := range want {
			data = write(data, x)
		}
		read := reader(element)
		for i, x := range want {
			must.Equal(t, read(data, int64(i)), x, element)
		}
	}
	if reader(ort.Int64) != nil {
		t.Error("integers are read as floats")
	}
}
