package plan

import (
	"slices"
	"strings"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
)

// uncountedOps compute at speeds of which no figure is known: in integers, one step after the
// other, or in ways that shapes do not tell.
var uncountedOps = []string{"MatMulInteger", "QLinearMatMul", "ConvInteger", "QLinearConv", "Einsum", "LSTM", "GRU",
	"RNN", "ConvTranspose", "NonMaxSuppression"}

// countedMicrosoft are ONNX Runtime's own operators whose work is counted: attention has its
// own formula, the others move what they read and make.
var countedMicrosoft = []string{"FusedMatMul", "BiasGelu", "FastGelu", "Gelu", "QuickGelu", "SkipLayerNormalization",
	"SkipSimplifiedLayerNormalization",
	"SimplifiedLayerNormalization", "EmbedLayerNormalization", "LayerNormalization", "RotaryEmbedding",
	"GatherBlockQuantized", "ExpandDims", "BiasSplitGelu"}

// uncounted says why the work of a node cannot be counted, or "".
func uncounted(n *graph.Node) string {
	name, microsoft := strings.CutPrefix(n.Op(), "com.microsoft.")
	switch {
	case len(n.Subgraphs) > 0:
		return "runs one of several graphs, or one several times"
	case blocks.IsAttentionOperator(n):
		return ""
	case microsoft && !slices.Contains(countedMicrosoft, name):
		return "is an operator whose work is not counted"
	case !microsoft && strings.Contains(name, "."):
		return "is an operator that is not known"
	case slices.Contains(uncountedOps, name):
		return "computes at a speed that is not known"
	}
	return ""
}

// weights is the bytes of a model's constants that operators read whole.
func weights(g *graph.Graph) (bytes float64) {
	seen := map[*graph.Value]bool{}
	for _, n := range g.Nodes {
		for _, v := range n.In {
			if v != nil && v.Tensor != nil && !seen[v] && !n.Is("Gather") {
				seen[v] = true
				elements, _ := graph.Elements(v.Tensor)
				bytes += float64(elements) * float64(weightBits(v)) / 8
			}
		}
	}
	return bytes
}

// isConstant reports a value that follows from constants: a session computes it once.
func (w *whole) isConstant(v *graph.Value) bool {
	return v == nil || v.Tensor != nil || w.constant[v]
}

// folded notes a node that a session computes when it is created.
func (w *whole) folded(n *graph.Node) bool {
	for _, v := range n.In {
		if !w.isConstant(v) {
			return false
		}
	}
	for _, v := range n.Out {
		w.constant[v] = true
	}
	return true
}

// moved is the seconds that reading and writing these values takes. Weights come from where
// all of them lie together, other values at a bandwidth: 0 for that of the cache that holds them.
func (w *whole) moved(list []*graph.Value, at map[string]int64, bandwidth float64) (float64, bool) {
	var weights, others []*graph.Value
	for _, v := range list {
		if v != nil && v.Tensor != nil {
			weights = append(weights, v)
		} else {
			others = append(others, v)
		}
	}
	read, ok := w.bytes(weights, at)
	bytes, known := w.bytes(others, at)
	if bandwidth == 0 {
		bandwidth = w.bandwidth(bytes)
	}
	return read/w.weightBandwidth + bytes/bandwidth, ok && known
}

// time is the expected time of a node that ONNX Runtime runs, with the bandwidth of moved.
func (w *whole) time(n *graph.Node, at map[string]int64, bandwidth float64) (float64, bool) {
	if t, ok := w.still(n); ok {
		return t, true
	}
	if q := numbersOf(n); q != nil {
		t, ok := w.nbits(n, q, at, false)
		return t + w.machine.Dispatch, ok
	}
	moves := slices.Concat(n.In, n.Out)
	if n.Is("Gather", "GatherND", "GatherElements", "Slice", "Split", "com.microsoft.EmbedLayerNormalization",
		"com.microsoft.GatherBlockQuantized") {
		moves = slices.Concat(n.Out, n.Out) // of a table it reads what it writes
	}
	t, ok := w.moved(moves, at, bandwidth)
	if !ok {
		return 0, false
	}
	t += w.machine.Dispatch
	work, share := graph.DimInt(0), matmulShare
	switch {
	case isMatMul(n):
		work = w.flops(n)
		if hasWeights(n) {
			share = weightShare
		}
	case n.Is("Conv"):
		work = convolution(n, w.shapes)
	case blocks.IsAttentionOperator(n):
		work = w.work[n]
		t += operatorOverhead
		if packed := packedProjections(n, w.shapes); packed.Known() {
			work = work.Add(packed)
		}
	}
	flops, ok := work.Eval(at)
	return t + float64(flops)/(w.machine.FLOPS*share), ok
}

// fusion is a normalisation or an activation that is exported as several nodes and that ONNX
// Runtime makes one of.
type fusion struct{ in, out *graph.Value }

// pointwise are the nodes that such a fusion is made of.
var pointwise = []string{"Add", "Sub", "Mul", "Div", "Pow", "Sqrt", "Reciprocal", "Erf", "Tanh", "Sigmoid",
	"ReduceMean", "Cast"}

// fusedNodes finds layer normalisations and activations among some nodes: all that follows
// from one value and constants in a few pointwise nodes, with one result.
func (w *whole) fusedNodes(nodes []*graph.Node) map[*graph.Node]*fusion {
	among := map[*graph.Node]bool{}
	for _, n := range nodes {
		among[n] = true
	}
	found, followed := map[*graph.Node]*fusion{}, map[*graph.Value]following{}
	for _, n := range nodes {
		if found[n] != nil || !n.Is(pointwise...) {
			continue
		}
		for _, root := range n.In {
			if root == nil || w.isConstant(root) || len(root.Uses) < 2 {
				continue
			}
			after, known := followed[root] // by all that read it
			if !known {
				after.group, after.out = follow(root, w.isConstant)
				followed[root] = after
			}
			group, out := after.group, after.out
			root.Graph.Spend(1 + len(group))
			if out == nil || slices.ContainsFunc(group, func(m *graph.Node) bool { return !among[m] || found[m] != nil }) {
				continue
			}
			f := &fusion{root, out}
			for _, m := range group {
				found[m] = f
			}
		}
	}
	return found
}

// following is what follow found.
type following struct {
	group []*graph.Node
	out   *graph.Value
}

// follow collects what follows from a value alone; out is its one result, nil where there are
// several or where it is neither a normalisation nor an activation.
func follow(root *graph.Value, constant func(*graph.Value) bool) (group []*graph.Node, out *graph.Value) {
	made := map[*graph.Value]bool{root: true}
	inside := map[*graph.Node]bool{}
	curved := false
	for queue := []*graph.Value{root}; len(queue) > 0 && len(group) < 16; queue = queue[1:] {
		root.Graph.Spend(len(queue[0].Uses))
		for _, u := range queue[0].Uses {
			m := u.Node
			if inside[m] || !m.Is(pointwise...) || len(m.Out) != 1 ||
				slices.ContainsFunc(m.In, func(v *graph.Value) bool { return !made[v] && !constant(v) }) {
				continue
			}
			inside[m] = true
			group = append(group, m)
			made[m.Out[0]] = true
			queue = append(queue, m.Out[0])
			curved = curved || m.Is("Erf", "Tanh", "Sigmoid", "ReduceMean")
		}
	}
	for _, m := range group {
		v := m.Out[0]
		if v.IsOutput || slices.ContainsFunc(v.Uses, func(u graph.Use) bool { return !inside[u.Node] }) {
			if out != nil {
				return nil, nil
			}
			out = v
		}
	}
	if !curved || len(group) < 2 {
		return nil, nil
	}
	return group, out
}
