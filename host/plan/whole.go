package plan

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Whole is what a plan is expected to gain over a run of the whole model, of which the
// blocks that it replaces are a part.
type Whole struct {
	Speedup  float64       `json:"speedup"` // geometric mean over the samples of unpatched by patched
	Least    float64       `json:"least"`   // the smallest of the samples
	Greatest float64       `json:"greatest"`
	Samples  []WholeSample `json:"at"`
	// Fused is the number of replaced blocks that ONNX Runtime is expected to fuse by itself
	// in the unpatched model. They are weighed against the fused operator.
	Fused int `json:"fused_by_onnxruntime"`
	// Replaced is the share of a run that the replaced blocks take, where it was measured, and AtMost what is to be had
	// if they took no time; null where shares are predicted.
	Replaced *float64 `json:"replaced_share,omitempty"`
	AtMost   *float64 `json:"at_most,omitempty"`
	// Reason says why nothing is estimated; "" where something is.
	Reason string `json:"not_estimated,omitempty"`
}

// WholeSample is one shape of the range with the expected seconds of a run.
type WholeSample struct {
	Symbols   map[string]int64 `json:"symbols"`
	Unpatched float64          `json:"unpatched_s"`
	Patched   float64          `json:"patched_s"`
}

// String is "expected 1.05x over the range, 1.01x at batch=1 to 1.20x at batch=4", or why
// nothing is expected.
func (x Whole) String() string {
	if x.Reason != "" {
		return "not estimated: " + x.Reason
	}
	at := func(ratio float64) string {
		for _, s := range x.Samples {
			if s.Unpatched/s.Patched != ratio {
				continue
			}
			var lengths []string
			for _, name := range slices.Sorted(maps.Keys(s.Symbols)) {
				lengths = append(lengths, fmt.Sprintf("%s=%d", name, s.Symbols[name]))
			}
			if len(lengths) > 0 {
				return " at " + strings.Join(lengths, ", ")
			}
		}
		return ""
	}
	if x.Replaced != nil {
		s := fmt.Sprintf("expected %.2fx%s, where the replaced blocks took %.0f %% of a run", x.Speedup, at(x.Speedup),
			100**x.Replaced)
		if x.AtMost != nil {
			s += fmt.Sprintf(": at most %.2fx is to be had", *x.AtMost)
		}
		return s
	}
	s := fmt.Sprintf("expected %.2fx over the range", x.Speedup)
	if x.Greatest > x.Least {
		s += fmt.Sprintf(": %.2fx%s, to %.2fx%s", x.Least, at(x.Least), x.Greatest, at(x.Greatest))
	}
	if x.Fused > 0 {
		s += fmt.Sprintf("; ONNX Runtime fuses %d of the replaced blocks by itself", x.Fused)
	}
	return s
}

// Whole estimates a run of the model with and without the plan: the work of all nodes on the
// roofline of Options.Machine, over the range of lengths that the choices were made for. The
// unpatched model is what ONNX Runtime runs after its own fusions.
func (p *Plan) Whole(g *graph.Graph, shapes *graph.Shapes, report *blocks.Report, o Options) Whole {
	w, why := p.whole(g, shapes, report, o)
	if why != "" {
		return Whole{Reason: why}
	}
	x := Whole{Least: math.Inf(1), Fused: w.runtimeFused}
	sum := 0.0
	for _, at := range w.range_ {
		s, why := w.sample(at)
		if why != "" {
			return Whole{Reason: why}
		}
		if !(s.Unpatched > 0) || !(s.Patched > 0) {
			continue
		}
		ratio := s.Unpatched / s.Patched
		x.Samples = append(x.Samples, s)
		x.Least, x.Greatest = min(x.Least, ratio), max(x.Greatest, ratio)
		sum += math.Log(ratio)
	}
	if len(x.Samples) == 0 {
		return Whole{Reason: "no length of the model is known"}
	}
	x.Speedup = math.Exp(sum / float64(len(x.Samples)))
	return x
}

// At estimates a run at the lengths of some symbols. Of sequences of which the plan computes the visible tokens
// alone, visible is the share of those: what is patched is estimated for sequences of that length.
func (p *Plan) At(g *graph.Graph, shapes *graph.Shapes, report *blocks.Report, f *padding.Facts, o Options,
	at map[string]int64, visible float64) (WholeSample, error) {
	w, why := p.whole(g, shapes, report, o)
	if why != "" {
		return WholeSample{}, errors.New(why)
	}
	s, why := w.sample(at)
	if why != "" {
		return s, errors.New(why)
	}
	if f == nil || p.Rows() != VisibleRows || visible >= 1 {
		return s, nil
	}
	s.Patched, why = w.visible(f, at, visible)
	if why != "" {
		return s, errors.New(why)
	}
	return s, nil
}

// FewerTokens is how many times as fast a run of long sequences is expected to be when three hidden tokens of four
// are left out; 0 where that is not known.
func (p *Plan) FewerTokens(g *graph.Graph, shapes *graph.Shapes, report *blocks.Report, f *padding.Facts,
	o Options) float64 {
	w, why := p.whole(g, shapes, report, o)
	if why != "" {
		return 0
	}
	best := 0.0
	for _, at := range w.range_ {
		long := slices.ContainsFunc(positions(shapes, f),
			func(name string) bool { return at[name] >= 4*ranges[roles.New][1] })
		s, why := w.sample(at)
		if !long || why != "" {
			continue
		}
		if fewer, why := w.visible(f, at, 0.25); why == "" && fewer > 0 {
			best = max(best, s.Patched/fewer)
		}
	}
	return best
}

// positions are the symbols of the length of sequences.
func positions(shapes *graph.Shapes, f *padding.Facts) []string {
	mask := shapes.Of(f.Mask)
	return mask.Dims[mask.Rank-1].Symbols()
}

// visible is the expected time of a patched run at some lengths when a share of the tokens is computed. Where
// attention stays as the model has it, that goes over all of them.
func (w *whole) visible(f *padding.Facts, at map[string]int64, share float64) (seconds float64, why string) {
	shorter := maps.Clone(at)
	for _, name := range positions(w.shapes, f) {
		shorter[name] = int64(math.Ceil(float64(at[name]) * share))
	}
	fewer := func(n *graph.Node) bool { return true }
	if f.Apart {
		rows := map[*graph.Node]bool{}
		for _, n := range slices.Concat(f.Early, f.Late) {
			rows[n] = true
		}
		for _, b := range f.Blocks {
			for _, n := range w.region(b.Block) {
				rows[n] = true
			}
		}
		fewer = func(n *graph.Node) bool { return rows[n] }
	}
	s, why := w.sampleOf(func(n *graph.Node) map[string]int64 {
		if fewer(n) {
			return shorter
		}
		return at
	})
	return s.Patched, why
}

// whole gathers what estimates of a run count, or says why there are none.
func (p *Plan) whole(g *graph.Graph, shapes *graph.Shapes, report *blocks.Report, o Options) (w *whole, why string) {
	if o.Device != nil {
		return nil, "times on a device are not predicted"
	}
	if o.Machine == (Machine{}) {
		o.Machine = ThisMachine()
	}
	e := newEstimator(shapes, roles.Find(g, shapes, report), p.times, o)
	w = &whole{estimator: e, constant: map[*graph.Value]bool{}, work: map[*graph.Node]graph.Dim{},
		weightBandwidth: o.Machine.Bandwidth}
	if weights(g) <= o.Machine.LastCacheBytes {
		w.weightBandwidth = max(o.Machine.LastCacheBandwidth, o.Machine.Bandwidth)
	}
	taken := w.take(p)
	for _, b := range report.Blocks {
		if b.Attention != nil && b.Wiring != nil && b.Wiring.Anchor != nil {
			w.work[b.Wiring.Anchor] = attentionWork(b)
		}
	}
	for _, n := range g.Nodes {
		if why := uncounted(n); why != "" {
			return nil, fmt.Sprintf("%s (%s) %s", n.Path(), n.Op(), why)
		}
		if !taken[n] && !w.folded(n) {
			w.rest = append(w.rest, n)
		}
	}
	w.fused = w.fusedNodes(w.rest)
	return w, ""
}

// whole estimates runs of a whole model.
type whole struct {
	*estimator
	rest            []*graph.Node             // that stay as they are
	fused           map[*graph.Node]*fusion   // those of the rest that ONNX Runtime makes one node of
	constant        map[*graph.Value]bool     // that follow from constants
	work            map[*graph.Node]graph.Dim // operations of attention operators
	replaced        []side
	runtimeFused    int
	weightBandwidth float64 // bytes a second: a model's weights are read once a run
}

// side is a replaced block: what it reads, makes and computes.
type side struct {
	ins, outs []*graph.Value
	nodes     []*graph.Node
	work      graph.Dim
	cost      manifest.Cost
	product   *graph.Node     // whose weight stands for integers, which are multiplied in panels
	integers  *model.Integers // nil for others
	fuses     bool            // ONNX Runtime makes one node of it by itself
	scores    graph.Dim       // elements of the scores in that node
}

// take notes the replaced blocks and returns the nodes that vanish with them.
func (w *whole) take(p *Plan) map[*graph.Node]bool {
	taken := map[*graph.Node]bool{}
	for i := range p.Choices {
		c := &p.Choices[i]
		if c.Operator == nil {
			continue
		}
		s := w.side(c)
		if b := c.Block; b != nil {
			if s.fuses = runtimeFuses(b); s.fuses {
				s.scores = b.Wiring.Batch.Mul(b.Wiring.Queries).Mul(b.Wiring.AllKeys).Mul(graph.DimInt(b.Attention.Heads))
				w.runtimeFused++
			}
		} else {
			if found := w.fusedNodes(s.nodes); len(found) > 0 && len(found) == len(s.nodes) {
				s.fuses, s.scores = true, graph.DimInt(0)
				w.runtimeFused++
			}
		}
		for _, n := range s.nodes {
			taken[n] = true
		}
		w.replaced = append(w.replaced, s)
	}
	return taken
}

// side is what a choice replaces, without what the runtime makes of it.
func (w *whole) side(c *Choice) side {
	s := side{cost: w.cost(c.Operator)}
	if b := c.Block; b != nil {
		s.ins, s.outs = ends(b)
		s.nodes, s.work = w.region(b), attentionWork(b)
	} else {
		s.ins, s.outs = c.Match.ends()
		s.nodes, s.work = c.Match.Gone(), w.estimator.work(c.Match.Nodes)
		s.product, s.integers = c.Match.product()
	}
	return s
}

// sample estimates a run with and without the plan at some lengths.
func (w *whole) sample(at map[string]int64) (s WholeSample, why string) {
	s, why = w.sampleOf(func(*graph.Node) map[string]int64 { return at })
	s.Symbols = at
	return s, why
}

// sampleOf estimates a run in which nodes have lengths of their own.
func (w *whole) sampleOf(lengths func(*graph.Node) map[string]int64) (s WholeSample, why string) {
	seen := map[*fusion]bool{}
	for _, n := range w.rest {
		t, ok, at := 0.0, true, lengths(n)
		if f := w.fused[n]; f != nil {
			if seen[f] {
				continue
			}
			seen[f] = true
			t, ok = w.moved([]*graph.Value{f.in, f.out}, at, 0)
			t += w.machine.Dispatch
		} else {
			t, ok = w.time(n, at, 0)
		}
		if !ok {
			return s, fmt.Sprintf("the lengths of %s (%s) are not known", n.Path(), n.Op())
		}
		s.Unpatched += t
	}
	s.Patched = s.Unpatched
	for i := range w.replaced {
		r := &w.replaced[i]
		if len(r.nodes) == 0 {
			return s, "the lengths of a replaced block are not known"
		}
		unpatched, patched, ok := w.compared(r, lengths(r.nodes[0]))
		if !ok {
			return s, "the lengths of a replaced block are not known"
		}
		s.Unpatched += unpatched
		s.Patched += patched
	}
	return s, ""
}

// compared is the expected time of a replaced block without and with its operator.
func (w *whole) compared(s *side, at map[string]int64) (unpatched, patched float64, ok bool) {
	if patched, ok = w.operator(s, at); !ok {
		return 0, 0, false
	}
	if s.integers != nil {
		unpatched, ok = w.nbits(s.product, s.integers, at, false)
		return unpatched + w.machine.Dispatch, patched, ok
	}
	flops, _ := s.work.Eval(at)
	all := slices.Concat(s.ins, s.outs)
	bytes, _ := w.bytes(all, at)
	// What a block reads and makes comes from memory or stays in cache the same way, patched or not.
	bandwidth := w.bandwidth(bytes)
	moved, _ := w.moved(all, at, bandwidth)
	arithmetic := float64(flops) / w.machine.FLOPS
	for _, n := range s.nodes {
		t, ok := w.time(n, at, bandwidth)
		if !ok {
			return 0, 0, false
		}
		unpatched += t
	}
	if s.fuses {
		n, ok := s.scores.Eval(at)
		if !ok {
			return 0, 0, false
		}
		// Scores are written by one matmul, turned into probabilities in place, and read by the other.
		bytes := scorePasses * 4 * float64(n)
		unpatched = min(unpatched, w.machine.Dispatch+moved+bytes/w.bandwidth(bytes/scorePasses)+arithmetic/matmulShare)
	}
	return unpatched, patched, true
}

// scorePasses is how often ONNX Runtime's fused attention goes over the scores.
const scorePasses = 4

// runtimeFuses reports a block that ONNX Runtime makes one node of when it optimises the
// unpatched model: self attention of an encoder, with biases in its projections and an
// additive mask of keys, as BERT has it.
func runtimeFuses(b *blocks.Block) bool {
	a := b.Attention
	p := a.Projections
	if a.Form != "nodes" || a.Type != "self" || a.Past != nil || a.Causal || a.Window > 0 || p == nil ||
		b.Wiring.Input == nil ||
		a.Mask == nil || a.Mask.PerHead || a.Mask.Bias != "" || a.Positions != "learned" && a.Positions != "none" {
		return false
	}
	return !slices.ContainsFunc([]*blocks.Linear{p.Query, p.Key, p.Value},
		func(l *blocks.Linear) bool { return l == nil || l.Bias == "" })
}
