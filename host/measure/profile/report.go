package profile

import (
	"cmp"
	"math"
	"slices"

	"github.com/opgraft/graft/host/measure/statistics"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/plan"
)

// Times are runs of a session, in milliseconds.
type Times struct {
	// TypicalMS is the mean of the faster half: in the others the machine did other things as well. Unlike medians, such
	// means of parts sum up to that of the whole.
	TypicalMS float64   `json:"typical_ms"`
	MedianMS  float64   `json:"median_ms"`
	TimesMS   []float64 `json:"times_ms"` // in order; none is left out
}

// Of are times with what is typical of them.
func Of(ms []float64) Times {
	return Times{meanOf(ms, faster(ms)), statistics.Median(ms), ms}
}

// faster are the faster half of runs, by their numbers.
func faster(ms []float64) []int {
	order := make([]int, len(ms))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ms[a], ms[b]) })
	return order[:(len(order)+1)/2]
}

// meanOf is the mean of some of a list; 0 of none.
func meanOf(list []float64, which []int) float64 {
	sum := 0.0
	for _, i := range which {
		sum += list[i]
	}
	return sum / float64(max(1, len(which)))
}

// Report is where the time of a run goes. Shares are of a run without the profiler.
type Report struct {
	// Run are runs without the profiler, Profiled those with it. What is said of parts is of what is typical.
	Run      Times `json:"run"`
	Profiled Times `json:"profiled"`
	// RecordingUS is what the profiler takes to record a call, in microseconds, which is taken off each.
	RecordingUS float64 `json:"recording_us"`
	// UnexplainedMS is what a run takes beside its nodes: below 0 where the nodes took longer when they were recorded
	// than all of a run takes otherwise, which is noise.
	UnexplainedMS    float64 `json:"unexplained_ms"`
	UnexplainedShare float64 `json:"unexplained_share"`

	Kinds     []Part  `json:"kinds"` // the longest first, as all lists
	Operators []Part  `json:"operators"`
	Blocks    []Block `json:"blocks"`
	Nodes     []Entry `json:"nodes"`
}

// Work is how fast something is computed, of which operations or bytes are known.
type Work struct {
	Operations float64 `json:"operations"` // of matmuls, convolutions and attention, in one run; 0 where none or not known
	Bytes      float64 `json:"bytes"`      // that its nodes read and write, weights included
	// OfPeak is the part of the machine's peak that it reaches, of float32; null where there are no operations, or of
	// other types.
	OfPeak *float64 `json:"of_peak"`
	// OfBandwidth is the part of the machine's bandwidth from memory that it reaches: above 1 where what it reads lies
	// in caches.
	OfBandwidth *float64 `json:"of_bandwidth"`
}

// Part is nodes that have something in common.
type Part struct {
	Name   string  `json:"name"`
	Nodes  int     `json:"nodes"`
	MS     float64 `json:"ms"`
	Share  float64 `json:"share"`
	AtMost float64 `json:"at_most"` // how many times as fast a run would be without them
	Work
}

// Block is what a choice of the plan is about.
type Block struct {
	Kind  string  `json:"kind"` // "attention", or the operator whose pattern was found
	Node  string  `json:"node"` // path of the node that it was recognised by
	MS    float64 `json:"ms"`
	Share float64 `json:"share"`
	Work

	choice int
}

// Entry is a node that the runtime ran.
type Entry struct {
	Name     string  `json:"name"`
	Operator string  `json:"operator"`
	Inside   string  `json:"inside,omitempty"` // the node whose subgraph it is of
	Kind     string  `json:"kind"`
	Block    string  `json:"block,omitempty"`
	MS       float64 `json:"ms"`
	Share    float64 `json:"share"`
	Calls    float64 `json:"calls"` // a run
	// Covers are the paths of the model's nodes that it stands for, where these are not itself.
	Covers  []string `json:"covers,omitempty"`
	Inputs  []Tensor `json:"inputs"` // without weights that the runtime has packed
	Outputs []Tensor `json:"outputs"`
	Work
}

// Subject is the model that was run.
type Subject struct {
	Graph   *graph.Graph
	Shapes  *graph.Shapes
	Plan    *plan.Plan
	Lengths map[string]int64 // of the run, by symbol
	Machine plan.Machine
}

// Sum says where the time of a run goes, from the runs of a profile from the one on and the times of runs with and
// without it.
func (p *Profile) Sum(from int, run, profiled []float64, ran []Ran, s Subject) *Report {
	r := &Report{Run: Of(run), Profiled: Of(profiled)}
	runs := float64(max(1, len(p.Runs)))
	calls, fastest := 0.0, math.Inf(1)
	for _, n := range p.Nodes {
		calls += float64(n.Calls) / runs
		fastest = min(fastest, n.Fastest)
	}
	// A part of what recording takes is in the recorded time, which no call has less of, and a part between two calls:
	// where these are of a subgraph, that is in the time of the node around them.
	recording, between := 0.0, 0.0
	if calls > 0 {
		each := max(0, (r.Profiled.TypicalMS-r.Run.TypicalMS)/calls)
		recording = min(fastest, each)
		between = each - recording
	}
	inside := map[*Node]float64{}
	for _, n := range p.Nodes {
		if n.Parent != nil {
			inside[n.Parent] += float64(n.Calls) / runs
		}
	}
	r.RecordingUS = 1e3 * recording
	typical := faster(p.Runs[min(from, len(p.Runs)):])
	explained := 0.0
	times := make([]float64, len(ran))
	for i, n := range ran {
		times[i] = max(0, meanOf(n.Self[min(from, len(n.Self)):],
			typical)-recording*float64(n.Calls)/runs-between*inside[n.Node])
		explained += times[i]
	}
	whole := max(explained, r.Run.TypicalMS)
	if r.UnexplainedMS = r.Run.TypicalMS - explained; whole > 0 {
		r.UnexplainedShare = max(0, r.UnexplainedMS/whole)
	}
	f := &folder{subject: s, shares: newShares(s), whole: whole, runs: runs, entries: []Entry{}}
	for i := range ran {
		f.add(&ran[i], times[i])
	}
	r.Nodes, r.Blocks = f.entries, f.blockList()
	r.Kinds, r.Operators = f.kinds.list(whole), f.operators.list(whole)
	slices.SortStableFunc(r.Nodes, func(a, b Entry) int { return cmp.Compare(b.MS, a.MS) })
	return r
}

// folder adds up nodes.
type folder struct {
	subject     Subject
	shares      *shares
	whole, runs float64
	entries     []Entry
	blocks      map[int]*Block
	kinds       parts
	operators   parts
}

func (f *folder) add(n *Ran, ms float64) {
	e := Entry{Name: n.Name, Operator: n.Operator, MS: ms, Calls: float64(n.Calls) / f.runs, Inputs: n.Inputs,
		Outputs: n.Outputs}
	if n.At != nil {
		e.Operator = n.At.Op()
	}
	if n.Parent != nil {
		e.Inside = n.Parent.Name
	}
	if f.whole > 0 {
		e.Share = ms / f.whole
	}
	for _, c := range n.Covers {
		if path := c.Path(); len(n.Covers) > 1 || path != n.Name {
			e.Covers = append(e.Covers, path)
		}
	}
	operations, float := f.shares.operations(n)
	operations *= e.Calls
	w := f.subject.work(ms, operations, e.Calls*bytesOf(n), float)
	e.Work = w
	e.Kind = kindOf(e.Operator, n)
	f.operators.add(e.Operator, ms, w, f.subject)
	rest := 1.0
	for _, part := range f.shares.of(n) {
		c := &f.subject.Plan.Choices[part.choice]
		if f.blocks == nil {
			f.blocks = map[int]*Block{}
		}
		b := f.blocks[part.choice]
		if b == nil {
			b = &Block{Kind: c.Kind, Node: c.Node, choice: part.choice}
			if c.Match != nil {
				b.Kind = c.Match.Operator.Name
			}
			f.blocks[part.choice] = b
		}
		some := f.subject.work(ms*part.share, operations*part.share, w.Bytes*part.share, float)
		b.MS += ms * part.share
		b.Work = f.subject.together(b.MS, b.Work, some)
		if c.Match == nil {
			rest -= part.share
			f.kinds.add(c.Kind, ms*part.share, some, f.subject)
			e.Kind = c.Kind
		}
		e.Block = c.Node
	}
	if rest > 1e-9 {
		kind := kindOf(e.Operator, n)
		if rest < 1 && operations > 0 { // the projections in an attention of one node
			kind = Linear
		}
		f.kinds.add(kind, ms*rest, f.subject.work(ms*rest, operations*rest, w.Bytes*rest, float), f.subject)
	}
	f.entries = append(f.entries, e)
}

func (f *folder) blockList() []Block {
	list := []Block{}
	for _, b := range f.blocks {
		if f.whole > 0 {
			b.Share = b.MS / f.whole
		}
		list = append(list, *b)
	}
	slices.SortFunc(list, func(a, b Block) int { return cmp.Or(cmp.Compare(b.MS, a.MS), cmp.Compare(a.choice, b.choice)) })
	return list
}

// parts are sums by name.
type parts struct{ at map[string]*Part }

func (p *parts) add(name string, ms float64, w Work, s Subject) {
	if p.at == nil {
		p.at = map[string]*Part{}
	}
	x := p.at[name]
	if x == nil {
		x = &Part{Name: name}
		p.at[name] = x
	}
	x.Nodes++
	x.MS += ms
	x.Work = s.together(x.MS, x.Work, w)
}

func (p *parts) list(whole float64) []Part {
	list := []Part{}
	for _, x := range p.at {
		if x.AtMost = 1; whole > 0 {
			x.Share = x.MS / whole
			x.AtMost = atMost(x.Share)
		}
		list = append(list, *x)
	}
	slices.SortFunc(list, func(a, b Part) int { return cmp.Or(cmp.Compare(b.MS, a.MS), cmp.Compare(a.Name, b.Name)) })
	return list
}

// most is what AtMost is where nothing else takes time: JSON has no infinity.
const most = 1e6

// atMost is how many times as fast a run is without a share of it (Amdahl).
func atMost(share float64) float64 { return min(most, 1/max(1-share, 1/most)) }

// work is what is known of how fast something is computed.
func (s Subject) work(ms, operations, bytes float64, float bool) Work {
	w := Work{Operations: operations, Bytes: bytes}
	if !(ms > 0) {
		return w
	}
	if operations > 0 && float && s.Machine.FLOPS > 0 {
		x := operations / (ms / 1e3) / s.Machine.FLOPS
		w.OfPeak = &x
	}
	if bytes > 0 && s.Machine.Bandwidth > 0 {
		x := bytes / (ms / 1e3) / s.Machine.Bandwidth
		w.OfBandwidth = &x
	}
	return w
}

// together is the work of two, which take so long together. It has a part of the peak where all that has operations
// is of float32.
func (s Subject) together(ms float64, a, b Work) Work {
	float := (a.Operations == 0 || a.OfPeak != nil) && (b.Operations == 0 || b.OfPeak != nil)
	return s.work(ms, a.Operations+b.Operations, a.Bytes+b.Bytes, float)
}

// Kindred is the blocks of one kind.
type Kindred struct {
	Part
	First string // path of the first
}

// Alike adds up blocks by kind, those that take longest first.
func Alike(list []Block) []Kindred {
	var out []Kindred
	for _, b := range list {
		i := slices.IndexFunc(out, func(k Kindred) bool { return k.Name == b.Kind })
		if i < 0 {
			i = len(out)
			out = append(out, Kindred{Part: Part{Name: b.Kind}, First: b.Node})
		}
		k := &out[i]
		k.Nodes++
		k.OfPeak, k.OfBandwidth = mean(k.OfPeak, k.MS, b.OfPeak, b.MS), mean(k.OfBandwidth, k.MS, b.OfBandwidth, b.MS)
		k.MS, k.Share, k.Operations, k.Bytes = k.MS+b.MS, k.Share+b.Share, k.Operations+b.Operations, k.Bytes+b.Bytes
	}
	for i := range out {
		out[i].AtMost = atMost(out[i].Share)
	}
	slices.SortStableFunc(out, func(a, b Kindred) int { return cmp.Compare(b.MS, a.MS) })
	return out
}

// mean is the mean of two rates over their times; that of one where the other is not known.
func mean(a *float64, ams float64, b *float64, bms float64) *float64 {
	switch {
	case a == nil:
		return b
	case b == nil || !(ams+bms > 0):
		return a
	}
	x := (*a*ams + *b*bms) / (ams + bms)
	return &x
}

// Measured is the run for plan.WholeMeasured.
func (r *Report) Measured(lengths map[string]int64) plan.Measured {
	m := plan.Measured{Lengths: lengths, Run: (r.Run.TypicalMS + max(0, -r.UnexplainedMS)) / 1e3,
		Choices: map[int]float64{}}
	for _, b := range r.Blocks {
		m.Choices[b.choice] = b.MS / 1e3
	}
	for _, k := range r.Kinds {
		if k.Name == Linear && k.OfPeak != nil {
			m.Linear.Seconds, m.Linear.Operations, m.Linear.Bytes = k.MS/1e3, k.Operations, k.Bytes
		}
	}
	return m
}
