package comparison

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/internal/must"
)

// TestCells: the product of the axes, the last one fastest, and its bound.
func TestCells(t *testing.T) {
	long := make([]int64, 17)
	for _, c := range []struct {
		axes []Axis
		want string // of the cells, or of the error
	}{
		{nil, "[map[]]"},
		{[]Axis{{"s", []int64{16, 64}}}, "[map[s:16] map[s:64]]"},
		{[]Axis{{"s", []int64{16, 64}}, {"b", []int64{1, 8}}}, "[map[b:1 s:16] map[b:8 s:16] map[b:1 s:64] map[b:8 s:64]]"},
		{[]Axis{{"s", nil}}, "axis s has no lengths"},
		{[]Axis{{"s", long}, {"b", long}}, "the axes give 17 x 17 cells, needed at most 256; give fewer lengths of --dim"},
	} {
		list, err := cells(c.axes)
		got := fmt.Sprint(list)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%v gives %s, want %s", c.axes, got, c.want)
		}
	}
}

// TestSweep: several sides and sizes of inputs, here and in a child process.
func TestSweep(t *testing.T) {
	folder := must.Value(filepath.Abs("../../../build/plugins"))(t)
	o := Options{A: "none", B: "auto", Others: []string{"flash-decode", "none"}, Force: true, Warmup: 1, Rounds: 2,
		Unoptimized: true,
		Inputs:      inputs.Options{Seed: 1, Dims: map[string]int64{"batch": 1}},
		Axes:        []Axis{{"past", []int64{3, 9}}, {"sequence", []int64{1, 2}}}}
	for name, sweep := range map[string]func() (*Swept, error){
		"here": func() (*Swept, error) { return Sweep(t.Context(), library(t), plugins(t), tiny, o) },
		"a child": func() (*Swept, error) {
			return SweepApart(t.Context(), Job{Model: tiny, Options: o, Folders: []string{folder}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := must.Value(sweep())(t)
			if len(s.Cells) != 4 || len(s.Sides) != 3 || s.A.Name != "none" || s.Sides[1].Name != "flash-decode" ||
				s.Sides[1].Replaced != 5 || s.Result() != nil || !s.OK() {
				t.Fatalf("%+v", s)
			}
			if len(s.Sides[1].Plan) != s.Sides[1].Blocks || s.Sides[1].Plan[0].Operator == "" ||
				s.Sides[1].Plan[0].Reason == "" || s.A.Plan != nil {
				t.Errorf("plan %+v", s.Sides[1].Plan)
			}
			for at, c := range s.Cells {
				past, sequence := o.Axes[0].Lengths[at/2], o.Axes[1].Lengths[at%2]
				if c.Lengths["past"] != past || c.Lengths["sequence"] != sequence || c.Inputs[0].Shape[1] != sequence {
					t.Errorf("cell %d has %v and %v", at, c.Lengths, c.Inputs[0])
				}
				if len(c.A.TimesMS) != 4 || len(c.Sides) != 3 {
					t.Fatalf("cell %d: %d times, %d sides", at, len(c.A.TimesMS), len(c.Sides))
				}
				for i, b := range c.Sides {
					if len(b.TimesMS) != 4 || b.Name != s.Sides[i].Name || !b.Parity.OK || len(b.Parity.Outputs) == 0 ||
						b.Parity.Outputs[0].Unoptimized == nil ||
						b.Speedup != statistics.SpeedupOf(c.A.TimesMS, b.TimesMS) {
						t.Errorf("cell %d, %s: %+v", at, b.Name, b)
					}
				}
			}
			text := must.Value(json.Marshal(s))(t)
			if again, err := Read("x.json", text); err != nil || !reflect.DeepEqual(again, s) {
				t.Errorf("read again: %v, %+v", err, again)
			}
		})
	}
}

// TestSweepErrors: what fails says in which cell.
func TestSweepErrors(t *testing.T) {
	o := Options{A: "none", B: "none", Rounds: 1, Warmup: 1,
		Axes: []Axis{{"rows", []int64{2, 3}}, {"nothing", []int64{1}}}}
	if _, err := Sweep(t.Context(), library(t), noPlugins, adder(t), o); err == nil ||
		!strings.HasPrefix(err.Error(), "with rows=3 nothing=1: ") {
		t.Errorf("an axis that there is not: %v", err)
	}
	o = Options{A: "none", B: "auto", Others: []string{"flash-decode"}, Rounds: 1, Warmup: 1}
	if _, err := Sweep(t.Context(), library(t), plugins(t), adder(t), o); err == nil ||
		!strings.Contains(err.Error(), "nothing is replaced on any side (a is none, b are auto, flash-decode;") {
		t.Errorf("sides that replace nothing: %v", err)
	}
}

// TestRead: what is no result is refused, and one side and cell are read as a sweep of one.
func TestRead(t *testing.T) {
	r := must.Value(Run(t.Context(), library(t), noPlugins, adder(t),
		Options{A: "none", B: "none", Warmup: 1, Rounds: 1,
			Inputs: inputs.Options{Dims: map[string]int64{"rows": 2, "width": 4}}}))(t)
	text := must.Value(json.Marshal(r))(t)
	s := must.Value(Read("x.json", text))(t)
	if again := s.Result(); !reflect.DeepEqual(again, r) {
		t.Errorf("%+v read as %+v", r, again)
	}
	for text, want := range map[string]string{
		"":                     "x.json: unexpected end of JSON input, needed the JSON of a comparison",
		"{}":                   "x.json: an object of schema_version 0",
		`{"schema_version":9}`: "x.json: an object of schema_version 9",
		`{"schema_version":3,"sides":[{}],"cells":[{"sides":[]}]}`:   "x.json: cell 0 with 0 sides of 1",
		`{"schema_version":3,"sides":[{}],"cells":[{"sides":[{}]}]}`: "x.json: cell 0 without times",
		`{"schema_version":3,"sides":[],"cells":[]}`:                 "x.json: a result without sides or cells",
		`{"schema_version":2,"speedup":{"median":"2"}}`:              "x.json: json: cannot unmarshal",
	} {
		if _, err := Read("x.json", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
