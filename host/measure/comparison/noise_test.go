package comparison

import (
	"context"
	"testing"

	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/internal/must"
)

// TestArbitrate: what a missed tolerance comes to beside the runtime's own
// rounding.
func TestArbitrate(t *testing.T) {
	path := adder(t)
	l := library(t)
	o := Options{A: "none", Inputs: inputs.Options{Dims: map[string]int64{"rows": 1, "width": 4}}}
	fed := must.Value(inputs.Make(l, path, o.Inputs))(t)
	t.Cleanup(fed.Close)
	s := must.Value(open(t.Context(), l, noPlugins, path, "none", o))(t)
	t.Cleanup(s.close)
	var far *ort.Value // what B said
	missed := func(name string, x *ort.Value) *pair {
		s.results = []*ort.Value{x}
		out := OutputParity{Name: name, Disagree: 1, MaxAbsolute: 0.5, Absolute: 1e-5, Relative: 1e-4}
		return &pair{a: s, b: &side{results: []*ort.Value{far}}, fed: fed,
			result: &Result{Parity: Parity{Outputs: []OutputParity{out}}}}
	}
	answers := must.Value(s.session.Run(context.Background(), fed.Values))(t)
	defer answers[0].Close()
	right := must.Value(ort.Data[float32](answers[0]))(t)
	near := append([]float32{}, right...)
	near[2] += 0.3
	beyond := append([]float32{}, right...)
	beyond[2] += 0.7
	far = floats(t, []int64{1, 4}, beyond...)
	cases := []struct {
		name     string
		a        []float32 // what A said, as if the runtime's rounding were this far off
		change   func(p *pair)
		options  func(o *Options)
		ok, look bool // whether it passes, whether the noise was measured
	}{
		{name: "the runtime agrees with itself", a: right, look: true},
		{name: "the runtime is as far from itself", a: near, ok: true, look: true},
		{name: "nowhere further than the runtime", a: near, ok: true,
			change: func(p *pair) { p.result.Parity.Outputs[0].MaxAbsolute = 1e-7 }, look: true},
		{name: "further than twice that", a: near, change: func(p *pair) { p.result.Parity.Outputs[0].MaxAbsolute = 0.7 },
			look: true},
		{name: "a runtime that does not run it so", a: near,
			change: func(p *pair) { p.references = &references{reference{failed: true}, reference{failed: true}} }},
		{name: "a tolerance that was asked for", a: near, options: func(o *Options) { o.Absolute = 1e-6 }},
		{name: "against another side", a: near, options: func(o *Options) { o.A = "auto" }},
		{name: "NaN on one side", a: near, change: func(p *pair) { p.result.Parity.Outputs[0].Problem = "NaN" }},
		{name: "integers", a: near, change: func(p *pair) { p.result.Parity.Outputs[0].Absolute = 0 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, o := missed("y", floats(t, []int64{1, 4}, c.a...)), o
			if c.change != nil {
				c.change(p)
			}
			if c.options != nil {
				c.options(&o)
			}
			must.Succeed(t, p.arbitrate(context.Background(), l, path, o))
			out := p.result.Parity.Outputs[0]
			if out.OK != c.ok || p.result.Parity.OK != c.ok || (out.Noise != nil) != c.look {
				t.Errorf("ok %v, noise %v, want %v, %v", out.OK, out.Noise, c.ok, c.look)
			}
		})
	}
	s.results = nil
}
