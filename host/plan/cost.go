package plan

import (
	"fmt"
	"math"
	"runtime"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Machine is what the cost model needs to know: a roofline with a cache. The
// ratio of two estimates depends on it weakly.
type Machine struct {
	Bandwidth      float64 // bytes a second from memory, all cores
	CacheBandwidth float64 // bytes a second from the last private cache
	CacheBytes     float64 // what stays in cache between two nodes
	FLOPS          float64 // fp32 operations a second
	Dispatch       float64 // seconds that ONNX Runtime spends to run a node
	// LastCacheBandwidth is bytes a second from the cache that all cores share,
	// LastCacheBytes its size; 0 for none.
	LastCacheBandwidth, LastCacheBytes float64
}

// ThisMachine estimates the machine from its number of cores: bandwidth and
// peak of common server cores, memory bandwidth shared beyond four of them.
func ThisMachine() Machine {
	n := float64(runtime.NumCPU())
	return Machine{Bandwidth: 22e9 * min(n, 4), CacheBandwidth: 90e9 * n, CacheBytes: 1.5e6 * n, FLOPS: 120e9 * n,
		Dispatch:           1.5e-6,
		LastCacheBandwidth: 45e9 * n, LastCacheBytes: 2e6 * n}
}

// String is the roofline for people.
func (m Machine) String() string {
	s := fmt.Sprintf("reads %.3g GB/s from memory", m.Bandwidth/1e9)
	if m.LastCacheBytes > 0 {
		s += fmt.Sprintf(" and %.3g GB/s from %.3g MiB of cache", m.LastCacheBandwidth/1e9, m.LastCacheBytes/(1<<20))
	}
	return s + fmt.Sprintf(", computes %.3g GFLOP/s", m.FLOPS/1e9)
}

// Sample is one shape of the range with the expected times, in seconds, of the
// nodes as exported and of the operator.
type Sample struct {
	Symbols   map[string]int64 `json:"symbols"`
	Unpatched float64          `json:"unpatched_s"`
	Operator  float64          `json:"operator_s"`
}

// Expectation is what an operator is expected to gain over a range of shapes.
type Expectation struct {
	Speedup float64  // geometric mean of Unpatched/Operator over the samples
	Worst   float64  // the smallest
	Samples []Sample // the range; none where only bytes are compared
	Bytes   bool     // of bytes moved and not of time: nothing is predicted of times on a device
}

// gains reports whether the operator is worth using.
func (x Expectation) gains() bool { return x.Speedup >= MinGain && x.Worst >= MaxLoss }

// String is "expected 1.50x over the range, 1.10x at worst", or what is said of bytes.
func (x Expectation) String() string {
	if x.Bytes {
		return fmt.Sprintf(
			"moves 1/%.2f of the bytes over the range, 1/%.2f at worst (times on the device are not predicted)", x.Speedup,
			x.Worst)
	}
	return fmt.Sprintf("expected %.2fx over the range, %.2fx at worst", x.Speedup, x.Worst)
}

func (x Expectation) reason(o Options) string {
	s := x.String()
	switch {
	case o.Fixed != nil:
		return s + " (named in the plan file)"
	case o.Force && !x.gains():
		return s + " (forced)"
	}
	return s
}

// estimator predicts times over a range of shapes.
type estimator struct {
	shapes    *graph.Shapes
	machine   Machine
	range_    []map[string]int64
	bytesOnly bool // machine is traffic
	panels    bool // weights are laid out in panels
	times     []manifest.IntegerTimes
	regions   map[*blocks.Block][]*graph.Node
	counts    map[*graph.Value]graph.Dim
}

// region is that of a block, found once.
func (e *estimator) region(b *blocks.Block) []*graph.Node {
	list, ok := e.regions[b]
	if !ok {
		list = blocks.Region(ends(b))
		e.regions[b] = list
	}
	return list
}

// count is the number of a value's elements, multiplied once.
func (e *estimator) count(v *graph.Value) graph.Dim {
	n, ok := e.counts[v]
	if !ok {
		n = e.shapes.Of(v).Count()
		e.counts[v] = n
	}
	return n
}

func newEstimator(s *graph.Shapes, r *roles.Roles, times []manifest.IntegerTimes, o Options) *estimator {
	e := &estimator{shapes: s, machine: o.Machine, panels: o.inPanels(), times: times, range_: samples(s.Symbols(), r),
		regions: map[*blocks.Block][]*graph.Node{}, counts: map[*graph.Value]graph.Dim{}}
	if o.Device != nil {
		e.machine, e.bytesOnly = traffic, true
	}
	return e
}

// attention compares a block as exported with an operator in its place.
func (e *estimator) attention(b *blocks.Block, op *manifest.Operator) Expectation {
	ins, outs := ends(b)
	return e.compare(e.region(b), ins, outs, attentionWork(b), scores(b), e.cost(op))
}

// ends are the values that a block reads and makes.
func ends(b *blocks.Block) (ins, outs []*graph.Value) {
	w := b.Wiring
	ins = []*graph.Value{w.Query, w.Key, w.Value, w.PastKey, w.PastValue, w.BoolMask, w.Lengths, w.HeadScale, w.Sinks}
	for _, b := range w.Biases {
		ins = append(ins, b.Value)
	}
	return ins,
		[]*graph.Value{w.Output, w.PresentKey, w.PresentValue, w.Scores}
}

// attentionWork counts the operations of the two matmuls of attention.
func attentionWork(b *blocks.Block) graph.Dim {
	return scores(b).Mul(graph.DimInt(2 * (b.Attention.HeadSize + b.Attention.ValueSize)))
}

// scores is the number of a block's scores.
func scores(b *blocks.Block) graph.Dim {
	w := b.Wiring
	return w.Batch.Mul(w.Queries).Mul(w.AllKeys).Mul(graph.DimInt(b.Attention.Heads))
}

// compare predicts both sides over the range. Where a length is not known at a
// sample, the sample tells nothing and is left out. Where it is known, no value within the region has more elements
// than inside or what the region reads and makes: reshapes to lengths that nobody knows tell apart what is one
// length, and their products would be of any size.
func (e *estimator) compare(region []*graph.Node, ins, outs []*graph.Value, work, inside graph.Dim,
	cost manifest.Cost) Expectation {
	x := Expectation{Worst: math.Inf(1), Bytes: e.bytesOnly}
	sum, count := 0.0, 0
	for _, at := range e.range_ {
		bytes, ok := e.bytes(append(append([]*graph.Value{}, ins...), outs...), at)
		flops, known := work.Eval(at)
		if !ok || !known {
			continue
		}
		most := limits{elements: math.Inf(1), flops: float64(flops)}
		if n, ok := inside.Eval(at); ok {
			most.elements = float64(n)
			for _, v := range append(append([]*graph.Value{}, ins...), outs...) {
				if v != nil {
					n, _ := e.count(v).Eval(at)
					most.elements = max(most.elements, float64(n))
				}
			}
		}
		// What a block reads and makes comes from memory or stays in cache
		// the same way, however it is written.
		bandwidth := e.bandwidth(bytes)
		unpatched, ok := e.exported(region, at, bandwidth, most)
		if !ok {
			continue
		}
		op := e.machine.Dispatch + cost.OverheadUS*1e-6 +
			max(bytes/(bandwidth*share(cost.Bandwidth)), float64(flops)/(e.machine.FLOPS*share(cost.FLOPS)))
		if !(unpatched > 0) || !(op > 0) {
			continue // empty tensors, where only bytes count
		}
		if count++; !e.bytesOnly {
			x.Samples = append(x.Samples, Sample{at, unpatched, op})
		}
		x.Worst = min(x.Worst, unpatched/op)
		sum += math.Log(unpatched / op)
	}
	if count == 0 {
		return Expectation{Speedup: 1, Worst: 1, Bytes: e.bytesOnly}
	}
	x.Speedup = math.Exp(sum / float64(count))
	return x
}

func share(x float64) float64 {
	if x <= 0 || x > 1 {
		return 1
	}
	return x
}

func (e *estimator) bandwidth(bytes float64) float64 {
	if bytes <= e.machine.CacheBytes {
		return e.machine.CacheBandwidth
	}
	return e.machine.Bandwidth
}

// limits are the most elements of one value of a region, and the most operations of one matmul.
type limits struct{ elements, flops float64 }

// exported is the expected time of the nodes as the graph has them.
func (e *estimator) exported(region []*graph.Node, at map[string]int64, bandwidth float64,
	most limits) (seconds float64, ok bool) {
	for _, n := range region {
		t, ok := e.node(n, at, bandwidth, most)
		if !ok {
			return 0, false
		}
		seconds += t
	}
	return seconds, len(region) > 0
}

// node is the expected time of one node: what it moves or computes, whichever
// takes longer, and its dispatch. Views move nothing; ONNX Runtime folds factors
// and transposes of the last axes into the matmul after them.
func (e *estimator) node(n *graph.Node, at map[string]int64, bandwidth float64, most limits) (float64, bool) {
	d := e.machine.Dispatch
	if t, ok := e.still(n); ok {
		return t, true
	}
	moved := append(append([]*graph.Value{}, n.In...), n.Out...)
	bytes, ok := e.bytesWithin(moved, at, most.elements)
	if !ok {
		return 0, false
	}
	t := bytes / bandwidth
	if isMatMul(n) {
		if flops, known := e.flops(n).Eval(at); known {
			arithmetic := min(float64(flops), most.flops) / e.machine.FLOPS
			if hasWeights(n) {
				t += arithmetic / weightShare
			} else {
				t = max(t, arithmetic/matmulShare)
			}
		}
	}
	if blocks.IsAttentionOperator(n) {
		// It joins past and new in memory first, and reads the whole again.
		again, ok := e.bytesWithin(n.Out, at, most.elements)
		if !ok {
			return 0, false
		}
		t += again / bandwidth
		if !e.bytesOnly {
			t += operatorOverhead
		}
	}
	return d + t, true
}

// still is the expected time of a node that moves and computes nothing: a view, a number that
// the matmul after it multiplies by, a transpose that it reads through.
func (e *estimator) still(n *graph.Node) (float64, bool) {
	if n.Is("Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Shape", "Constant", "Dropout") {
		return e.machine.Dispatch, true
	}
	p, ok := n.Ints("perm")
	return 0, n.Is("Mul", "Div") && (isNumber(n.Input(1)) || isNumber(n.Input(0))) ||
		ok && n.Is("Transpose") && len(p) > 2 && p[len(p)-1] == int64(len(p)-2)
}

// matmulShare is the part of the machine's peak that ONNX Runtime's matmul
// reaches; weightShare that of a matmul with packed weights, which reads them
// first and multiplies then: measured from 1 to 64 rows, its time is the sum of
// both. operatorOverhead is what its attention operators take to set up.
const (
	matmulShare      = 0.7
	weightShare      = 0.93
	operatorOverhead = 6e-6
)

func isMatMul(n *graph.Node) bool { return n.Is("MatMul", "Gemm", "com.microsoft.FusedMatMul") }

// hasWeights reports a matmul whose second operand ONNX Runtime packs when a
// session is created.
func hasWeights(n *graph.Node) bool {
	w := n.Input(1)
	return w != nil && w.Tensor != nil && len(w.Tensor.Dims) == 2
}

// flops counts the operations of a matmul.
func (e *estimator) flops(n *graph.Node) graph.Dim {
	return e.shapes.Of(n.Output(0)).Count().Mul(e.shapes.Of(n.Input(0)).Dim(-1)).Mul(graph.DimInt(2))
}

// work is the arithmetic of the matmuls among some nodes: what an operator in
// their place computes as well.
func (e *estimator) work(nodes []*graph.Node) graph.Dim {
	sum := graph.DimInt(0)
	for _, n := range nodes {
		if isMatMul(n) {
			sum = sum.Add(e.flops(n))
		}
	}
	return sum
}

// isNumber reports a constant of one element.
func isNumber(v *graph.Value) bool {
	if v == nil || v.Tensor == nil {
		return false
	}
	n, err := graph.Elements(v.Tensor)
	return err == nil && n == 1
}

// bytes is the size of these values together, each counted once.
func (e *estimator) bytes(list []*graph.Value, at map[string]int64) (float64, bool) {
	return e.bytesWithin(list, at, math.Inf(1))
}

// bytesWithin is bytes where no value has more elements than most.
func (e *estimator) bytesWithin(list []*graph.Value, at map[string]int64, most float64) (float64, bool) {
	total := 0.0
	seen := map[*graph.Value]bool{}
	for _, v := range list {
		if v == nil || seen[v] {
			continue
		}
		seen[v] = true
		v.Graph.Spend(1)
		n, ok := e.count(v).Eval(at)
		if !ok {
			return 0, false
		}
		total += min(float64(n), most) * float64(model.ElementBits(e.shapes.Of(v).DType)) / 8
	}
	return total, true
}
