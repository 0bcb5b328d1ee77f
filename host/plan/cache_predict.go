package plan

import (
	"maps"

	"github.com/opgraft/graft/host/plugin/manifest"
)

// Prediction is what a candidate is expected to take for all layers of a kind.
type Prediction struct {
	Seconds float64 `json:"seconds"` // of one step
	Bytes   int64   `json:"bytes"`   // stored for one request
	// of one request before its first step, beyond what every candidate computes
	Prefill float64 `json:"prefill_s"`
	// Seconds is from a table of this machine, and what Prefill and Seconds hold of linear layers
	Measured bool    `json:"measured"`
	Model    float64 `json:"predicted_seconds"` // Seconds as predicted, also where there is a measurement
}

// PerStep is the time of a step with its part of what was computed before the
// first one.
func (p Prediction) PerStep(s Shape) float64 {
	if s.Steps <= 0 {
		return p.Seconds
	}
	return p.Seconds + p.Prefill*float64(s.Batch)/float64(s.Steps)
}

// Measurements hold times that were measured on this machine.
type Measurements interface {
	// Seconds is the time of one step's attention operators of all layers; false where
	// the shape lies outside of what was measured. It allocates nothing.
	Seconds(l Layers, c Candidate, s Shape) (float64, bool)
	// Projection is the time in which keys and values of all layers are made: of a step's
	// new tokens for self attention, of one encoder's output for cross attention; false
	// likewise.
	Projection(l Layers, s Shape) (float64, bool)
}

// Predictor predicts times and bytes. It changes nothing and may be used by several
// goroutines at once.
type Predictor struct {
	machine  Machine
	costs    map[Strategy]manifest.Cost
	measured Measurements
}

// NewPredictor makes one of a machine's roofline, of what the manifests say of the
// operators that will run (nil: nothing), and of measurements of them (nil: none).
func NewPredictor(m Machine, manifests []*manifest.Manifest, implementations Implementations,
	measured Measurements) *Predictor {
	implementations = implementations.Among(manifests)
	p := &Predictor{machine: m, costs: maps.Clone(usualCosts), measured: measured}
	for _, k := range implementations.Strategies() {
		if l := implementations.Layout(k); l.Strategy != l.Inputs {
			p.costs[k] = usualCosts[l.Inputs]
		}
		x := implementations.Of(k)
		for _, m := range manifests {
			if m.Name != x.Plugin {
				continue
			}
			if op, ok := m.Operator(x.Operator); ok && op.Cost != (manifest.Cost{}) {
				p.costs[k] = op.Cost
			}
		}
	}
	return p
}

// usualCosts are the shares of operators whose plugin states none.
var usualCosts = map[Strategy]manifest.Cost{
	Exported:           {Bandwidth: 0.6, FLOPS: 0.3, OverheadUS: 20},
	KeysValues:         {Bandwidth: 0.92, FLOPS: 0.5, OverheadUS: 6},
	PromptHiddenStates: {Bandwidth: 0.9, FLOPS: 0.85, OverheadUS: 12},
	Keys:               {Bandwidth: 0.9, FLOPS: 0.8, OverheadUS: 10},
	HiddenStates:       {Bandwidth: 0.9, FLOPS: 0.85, OverheadUS: 12},
	FirstLayerKeys:     {Bandwidth: 0.9, FLOPS: 0.85, OverheadUS: 12},
}

// work is what a layer's step moves and computes.
type work struct {
	cache  float64 // bytes read of what is stored
	attend float64 // operations on it
	// own is the bytes of keys and values that stand beside rows of another kind, and
	// attendOwn the operations on them.
	own, attendOwn float64
	weights        float64 // bytes of weights, read once for all rows
	operations     float64 // operations on them
	// projection is the bytes of weights with which new keys and values are made
	// outside of the operator, and projected the operations on them.
	projection, projected float64
	shared                bool // all layers read the same: it may stay in cache
}

// Predict is what a candidate is expected to take at a shape.
func (p *Predictor) Predict(l Layers, c Candidate, s Shape) Prediction {
	out := Prediction{Bytes: c.Bytes(l, s)}
	w := works(l, c, s)
	layers := float64(l.Layers)
	columns := filled(l, c)
	out.Prefill = p.linear(4*float64(l.Width)*columns, 2*float64(s.Keys)*float64(l.Width)*columns)
	projection := p.linear(w.projection, w.projected)
	out.Model = layers * (p.operator(l, c, s, w) + projection)
	if c.Inputs() == FirstLayerKeys { // the first layer has its keys
		k := Candidate{Strategy: Keys, Storage: c.Storage}
		out.Model += p.operator(l, k, s, works(l, k, s)) - p.operator(l, c, s, w)
	}
	out.Seconds = out.Model
	if p.measured == nil {
		return out
	}
	t, ok := p.measured.Seconds(l, c, s)
	if !ok {
		return out
	}
	// The figures of a table were taken together; what a machine did at another time may
	// be half of it.
	made := layers * projection
	if whole, ok := p.measured.Projection(l, s); ok {
		all := layers * float64(l.KeyWidth()+l.ValueWidth())
		made = whole * layers * w.projection / (4 * float64(l.Width) * all)
		out.Prefill = whole * columns / all
	}
	out.Seconds, out.Measured = t+made, true
	return out
}

// Operators is the predicted time of a step's attention operators alone: what a
// measurement of them is held against.
func (p *Predictor) Operators(l Layers, c Candidate, s Shape) float64 {
	w := works(l, c, s)
	return p.withoutMeasurements().Predict(l, c, s).Model - float64(l.Layers)*p.linear(w.projection, w.projected)
}

func (p *Predictor) withoutMeasurements() *Predictor {
	q := *p
	q.measured = nil
	return &q
}

// operator is the time of one layer's operator. Reading what is stored and computing
// on it overlap, as reading weights and multiplying with them do; the phases follow
// each other.
func (p *Predictor) operator(l Layers, c Candidate, s Shape, w work) float64 {
	cost := p.costs[c.Strategy]
	read := w.cache / (p.machine.Bandwidth * share(cost.Bandwidth))
	if w.shared && l.Layers > 1 && w.cache+float64(OtherWeights(l)) <= p.machine.LastCacheBytes {
		again := w.cache / (p.machine.LastCacheBandwidth * share(cost.Bandwidth))
		read = (read + again*float64(l.Layers-1)) / float64(l.Layers)
	}
	compute := w.attend / (p.machine.FLOPS * share(cost.FLOPS))
	both := p.costs[KeysValues]
	own := max(w.own/(p.machine.Bandwidth*share(both.Bandwidth)), w.attendOwn/(p.machine.FLOPS*share(both.FLOPS)))
	return p.machine.Dispatch + cost.OverheadUS*1e-6 + max(read, compute) + own + p.linear(w.weights, w.operations)
}

// linear is the time of linear layers.
func (p *Predictor) linear(bytes, flops float64) float64 {
	return max(bytes/p.machine.Bandwidth, flops/(p.machine.FLOPS*weightShare))
}

// OtherWeights is about how many bytes a decoder reads between the attention of two
// layers: projections, and a feed-forward of four times the width.
func OtherWeights(l Layers) int64 { return 4 * 14 * l.Width * l.Width }

// works counts one layer's step.
func works(l Layers, c Candidate, s Shape) work {
	n, m, beams, batch := float64(s.Keys), float64(s.Own), float64(s.Beams), float64(s.Batch)
	h, g, hs, vs, d := float64(l.Heads), float64(l.KVHeads), float64(l.HeadSize), float64(l.ValueSize), float64(l.Width)
	if l.Type == "cross" {
		m = 0
	}
	rows := batch * beams
	both := 4 * g * (hs + vs) // bytes of a position's keys and values
	read := batch * (n + beams*m)
	var w work
	if l.Type == "self" && c.Inputs() != HiddenStates {
		values := g * vs
		if c.Inputs() == Keys {
			values = 0 // folded into the operator's own weights
		}
		w.projection = 4 * d * (g*hs + values)
		w.projected = 2 * rows * d * (g*hs + values)
	}
	// over is the work over rows of a width for positions; expanded and contracted are
	// linear layers of keys and values.
	over := func(width float64, positions float64) {
		w.attend += rows * positions * h * 4 * width
		w.weights += 4 * width * g * (hs + vs)
		w.operations += 2 * rows * h * width * (hs + vs)
	}
	switch c.Inputs() {
	case Exported:
		w.cache = rows * (n + m) * both
		w.attend = rows * (n + m) * h * 2 * (hs + vs)
	case KeysValues:
		w.cache = read * float64(c.rowBytes(l))
		w.attend = rows * (n + m) * h * 2 * (hs + vs)
	case PromptHiddenStates:
		w.cache = batch * n * float64(c.rowBytes(l))
		over(d, n)
		w.shared = l.Type == "cross"
		w.own = batch * beams * m * float64(Candidate{Strategy: KeysValues, Storage: c.Storage}.rowBytes(l))
		w.attendOwn = rows * m * h * 2 * (hs + vs)
	case HiddenStates:
		w.cache = read * float64(c.rowBytes(l))
		over(d, n+m)
	case Keys:
		e := h * hs
		w.cache = read * float64(c.rowBytes(l))
		w.attend = rows * (n + m) * h * 2 * (hs + e)
		w.weights = 4 * e * h * vs
		w.operations = 2 * rows * h * e * vs
	case FirstLayerKeys:
		w.cache = read * float64(c.rowBytes(l))
		over(h*hs, n)
		w.shared = true
	}
	return w
}

// filled is the columns of all layers' weights with which a candidate makes, before
// its first step, what it stores of an encoder's output.
func filled(l Layers, c Candidate) float64 {
	if l.Type != "cross" {
		return 0
	}
	switch c.Inputs() {
	case PromptHiddenStates:
		return 0
	case Keys:
		return float64(l.Layers * l.KeyWidth())
	case FirstLayerKeys:
		return float64(l.KeyWidth())
	}
	return float64(l.Layers * (l.KeyWidth() + l.ValueWidth()))
}
