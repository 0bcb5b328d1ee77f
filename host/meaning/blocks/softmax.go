package blocks

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// scores is the way from the matmul of query and key to the softmax.
type scores struct {
	matmul           *graph.Node
	scale            float64
	softcap          float64
	biases           []Bias
	headScale        *graph.Value
	sinks            *graph.Value // (.., heads, ..), joined to the scores after all else
	apart            bool         // a mask lies over batch or heads, told apart
	boolMask         *graph.Value
	boolMaskInverted bool
	fill             float64
	maskAfterBias    bool
	floor            float64     // the sum of biases is raised to it; 0: it is not
	rounded          *graph.Node // after the masks read from here on, rounds scores to a type that is not float32
}

// softmax recognises attention exported as single nodes around a softmax.
func (f *finder) softmax(n *graph.Node) (*Block, error) {
	rank := f.shapes.Of(n.Input(0)).Rank
	def := int64(-1)
	if n.Graph.Opset("") < 13 {
		def = 1
	}
	if ax := n.Int("axis", def); rank < 0 || ax != -1 && ax != int64(rank-1) {
		return nil, errors.New("it does not run over the last axis of a tensor of known rank, as attention does")
	}
	sc, err := f.scores(n.Input(0))
	if err != nil {
		return nil, err
	}
	if sc.floor != 0 && sc.boolMask != nil && len(sc.biases) > 0 {
		return nil, errors.New("the sum of an additive and a boolean mask is raised to a number")
	}
	w := &Wiring{Graph: n.Graph, Anchor: n, Biases: sc.biases, HeadScale: sc.headScale, Sinks: sc.sinks,
		BoolMask: sc.boolMask, BoolMaskInverted: sc.boolMaskInverted,
		Fill: sc.fill, MaskAfterBias: sc.maskAfterBias, Floor: sc.floor, ScoresMode: 3}
	by, err := f.weighted(n.Output(0), w)
	if err != nil {
		return nil, err
	}
	q, k, alpha, err := f.operands(sc.matmul)
	if err != nil {
		return nil, err
	}
	values, v, beta, err := f.operands(by.matmul)
	if err != nil {
		return nil, err
	}
	if beta != 1 || !by.turned && by.matmul.Int("transB", 0) != 0 {
		return nil, errors.New("the matmul of probabilities and values is scaled or transposed")
	}
	if sc.matmul.Int("transB", 0) == 0 { // keys arrive as (..., size, positions)
		k.turn()
	}
	out := view{value: by.matmul.Output(0), scale: 1}
	if out.dims, err = f.start(out.value, "d"); err != nil {
		return nil, err
	}
	if by.turned {
		v = values
		v.turn()
		out.turn()
	}
	b := &Block{Kind: "attention", Node: n.Path(), Wiring: w}
	b.Attention = &Attention{Form: "nodes", Softcap: sc.softcap, Sinks: sc.sinks != nil, Scores: by.read != nil}
	if w.Scores = by.read; by.read != nil && f.shapes.Of(by.read).Rank != 4 {
		b.Obstacle = "its probabilities, which something else reads, have batch and heads in one axis"
	}
	if err := f.finish(b, q, k, v, out, sc.scale*alpha); err != nil {
		return nil, err
	}
	if w.Wide && w.Sinks != nil { // a row would be raised, which a softmax sees beside a sink
		return nil, errors.New("its scores are sums of float16 beside sinks, for which that type has no digits")
	}
	if sc.apart && w.QueryLayout == "bs1d" {
		return nil, errors.New("batch and heads are told apart under its mask and not in its query")
	}
	if sc.headScale != nil && w.QueryLayout != "bhsd" {
		return nil, errors.New("its scores are scaled by a factor for each head, and its query does not lie as heads of " +
			"positions")
	}
	return b, nil
}

// overClasses reports a softmax over a fixed number of scores that a linear layer makes.
func (f *finder) overClasses(n *graph.Node) bool {
	if !n.Is("Softmax") {
		return false
	}
	s := f.shapes.Of(n.Input(0))
	_, fixed := s.Dim(-1).Const()
	axis := n.Int("axis", -1)
	if axis != -1 && axis != int64(s.Rank-1) || !fixed {
		return false
	}
	v := f.first(n.Input(0))
	for range 16 {
		n := f.maker(v)
		switch {
		case n.Is("MatMul", "Gemm"):
			return f.isConstant(n.Input(1))
		case n.Is("Cast", "TopK") || reshapes(n):
			v = n.Input(0)
		case n.Is("Add") && f.isConstant(n.Input(0)):
			v = n.Input(1)
		case n.Is("Add") && f.isConstant(n.Input(1)):
			v = n.Input(0)
		case n.Is("Mul", "Div"):
			x, _, ok := f.scalarFactor(n)
			if !ok {
				return false
			}
			v = x
		default:
			return false
		}
	}
	return false
}

// start labels the dimensions of an operand of a batched matmul, of which the
// last holds the axis of this role.
func (f *finder) start(v *graph.Value, last string) ([][]axis, error) {
	s := f.shapes.Of(v)
	roles := []string{"b", "h", "s", last}
	switch s.Rank {
	case 3:
		roles = []string{"bh", "s", last}
	case 4:
	default:
		return nil, fmt.Errorf("%s has rank %d where attention's matmuls have 3 or 4", describe(v), s.Rank)
	}
	dims := make([][]axis, s.Rank)
	for i, role := range roles {
		dims[i] = []axis{{role: role, size: s.Dims[i]}}
	}
	return dims, nil
}

// operands are the labelled inputs of a batched matmul.
func (f *finder) operands(n *graph.Node) (a, b view, alpha float64, err error) {
	alpha = 1
	if why := n.Unread(); why != "" {
		return a, b, 0, fmt.Errorf("%s: %s", n, why)
	}
	if n.Op() == "com.microsoft.FusedMatMul" {
		alpha = float64(n.Float("alpha", 1))
		if n.Int("transA", 0)+n.Int("transBatchA", 0)+n.Int("transBatchB", 0) != 0 {
			return a, b, 0, fmt.Errorf("%s transposes what attention does not", n)
		}
	}
	a = view{value: n.Input(0), scale: 1}
	b = view{value: n.Input(1), scale: 1}
	if a.dims, err = f.start(a.value, "d"); err != nil {
		return a, b, 0, err
	}
	b.dims, err = f.start(b.value, "d")
	return a, b, alpha, err
}

// scores walks from the softmax up to the matmul of query and key.
func (f *finder) scores(v *graph.Value) (*scores, error) {
	dims, err := f.start(v, "t")
	if err != nil {
		return nil, err
	}
	sc := &scores{scale: 1, fill: math.Inf(-1)}
	at := view{v, dims, 1}
	for {
		from := at.value
		if at.value = f.first(from); at.value != from && f.shapes.Of(from).DType != onnx.Tensor_FLOAT {
			sc.rounded = from.Producer // views that undo each other round nevertheless
		}
		n := at.value.Producer
		switch {
		case n == nil:
			return nil, fmt.Errorf("its input %s is no matmul of query and key", at.value.Name)
		case isMatMul(n):
			if f.isConstant(n.Input(1)) || f.shapes.Of(n.Input(1)).Rank < 3 {
				return nil, fmt.Errorf("its scores come from %s, a matmul with a constant and not of query and key", n)
			}
			if !at.isScores() {
				return nil, fmt.Errorf("the axes of its scores could not be told apart at %s", n)
			}
			sc.matmul = n
			return sc, nil
		case n.Is("Cast") && f.isFloat(n.Input(0)):
			if f.shapes.Of(at.value).DType != onnx.Tensor_FLOAT {
				sc.rounded = n
			}
			at.value = n.Input(0)
		case n.Is("Add"):
			err = f.added(sc, n, &at)
		case n.Is("Where"):
			err = f.where(sc, n, &at)
		case n.Is("Mul", "Div"):
			err = f.scaled(sc, n, &at)
		case n.Is("Max", "Clip"):
			err = f.raised(sc, n, &at)
		case n.Is("Sub") && sc.boolMask == nil && sc.softcap == 0 && sc.floor == 0 && sc.sinks == nil &&
			f.isRowMaximum(f.in(n, 1), n.In[0]):
			at.value = n.In[0] // a softmax takes it off anyway
		case n.Is("Concat"):
			err = f.joinsSinks(sc, n, &at)
		case n.Is("DequantizeLinear"):
			return nil, fmt.Errorf("its scores are %s (%s)", rounded, n)
		default:
			next, ok := f.stepUp(at, false)
			if !ok && reshapes(n) {
				return nil, fmt.Errorf("the axes of its scores could not be told apart at %s", n)
			}
			if !ok {
				return nil, fmt.Errorf("its scores come from %s %s and not from a matmul of query and key", n.Op(), n)
			}
			if f.shapes.Of(at.value).DType != onnx.Tensor_FLOAT {
				sc.rounded = n
			}
			at = next
		}
		if err != nil {
			return nil, err
		}
	}
}

// scaled reads a factor, or the last factor of a soft cap c * tanh(x / c).
func (f *finder) scaled(sc *scores, n *graph.Node, at *view) error {
	x, c, ok := f.scalarFactor(n)
	if h, y := f.headFactor(n); !ok && h != nil && sc.headScale == nil && sc.softcap == 0 && at.text() == "b h s t" {
		at.value, sc.headScale = y, h
		return nil
	}
	if !ok {
		return fmt.Errorf("its scores pass through %s, whose factor is not a number known at load time", n)
	}
	tanh := f.maker(x)
	if !tanh.Is("Tanh") {
		at.value, sc.scale = x, sc.scale*c
		return nil
	}
	if inner := f.maker(tanh.Input(0)); inner.Is("Mul", "Div") && sc.softcap == 0 && sc.scale == 1 && sc.headScale == nil {
		// What stands before the cap besides 1/c is scale.
		if y, d, ok := f.scalarFactor(inner); ok {
			at.value, sc.softcap, sc.scale = y, c, d*c
			return nil
		}
	}
	return fmt.Errorf("its scores pass through %s, which is no soft cap", tanh)
}

// isRowMaximum reports the greatest score of each query, (.., 1).
func (f *finder) isRowMaximum(v, scores *graph.Value) bool {
	dims, of := f.shapes.Of(v).Dims, f.shapes.Of(scores).Dims
	if len(dims) == 0 || len(dims) != len(of) || !isOne(dims[len(dims)-1]) {
		return false
	}
	n := v.Producer
	for n.Is("Unsqueeze", "Reshape", "Identity") {
		n = f.in(n, 0).Producer
	}
	if !n.Is("ReduceMax") || n.Unread() != "" || f.first(n.Input(0)) != f.first(scores) {
		return false
	}
	axes := f.numbers(n, 1, "axes")
	if len(axes) != 1 || axes[0] != -1 && axes[0] != int64(len(of)-1) {
		return false
	}
	for i := range len(of) - 1 {
		if !dims[i].Equal(of[i]) {
			return false
		}
	}
	return true
}

// raised reads Max(scores, c) or Clip(scores, c) of a number below all scores: only masks of minus infinity are
// raised by it, so that a softmax over a row of nothing else makes numbers.
func (f *finder) raised(sc *scores, n *graph.Node, at *view) error {
	x, bound := f.in(n, 0), f.in(n, 1)
	if n.Is("Max") && f.isScalar(x) {
		x, bound = bound, x
	}
	c, ok := f.scalar(bound)
	if !ok || len(n.In) > 2 && n.In[2] != nil || c > -1e30 || c < -math.MaxFloat32 ||
		f.shapes.Of(n.Output(0)).DType != onnx.Tensor_FLOAT {
		return fmt.Errorf("its scores pass through %s, whose bound is no number of float32 below all scores", n)
	}
	if len(sc.biases) > 0 || sc.boolMask != nil || sc.scale != 1 || sc.softcap != 0 || sc.headScale != nil ||
		sc.floor != 0 {
		return fmt.Errorf("its scores pass through %s and are masked, scaled or raised after it", n)
	}
	at.value, sc.floor = x, c
	return nil
}

// uncapped refuses a mask under a soft cap, which bends what it adds, and under a factor of each head.
func (sc *scores) uncapped(mask *graph.Node) error {
	if sc.softcap != 0 || sc.headScale != nil {
		return fmt.Errorf("its scores are capped, or scaled by head, after their mask %s", mask)
	}
	return nil
}

// choice is what a Where takes where its condition holds and where it does not,
// with negations of the condition undone.
func (f *finder) choice(n *graph.Node) (condition, yes, no *graph.Value) {
	condition, yes, no = f.in(n, 0), f.in(n, 1), f.in(n, 2)
	for condition.Producer.Is("Not") {
		condition, yes, no = f.in(condition.Producer, 0), no, yes
	}
	return condition, yes, no
}

// where reads a boolean mask.
func (f *finder) where(sc *scores, n *graph.Node, at *view) error {
	if sc.boolMask != nil {
		return fmt.Errorf("two boolean masks in a row (%s)", n)
	}
	if err := sc.uncapped(n); err != nil {
		return err
	}
	condition, x, fill := f.choice(n)
	c, ok := f.scalar(fill)
	if !ok {
		x, fill = fill, x
		if c, ok = f.scalar(fill); !ok {
			return fmt.Errorf("%s hides scores with a value that is not a number known at load time", n)
		}
		sc.boolMaskInverted = true
	}
	if c *= sc.scale; c > -1e3 {
		return fmt.Errorf("%s puts %g in place of scores, which hides nothing", n, c)
	}
	if sc.floor != 0 {
		c = max(c, sc.floor)
	}
	if b, err := f.fits(sc, condition, *at); err != nil || b.Joined || b.Windows {
		return cmp.Or(err, fmt.Errorf("the boolean mask %s lies over batch and heads in another form than scores have",
			describe(condition)))
	}
	if err := f.longer(condition, x); err != nil {
		return err
	}
	sc.boolMask, sc.fill = condition, c
	at.value = x
	return nil
}

func isMatMul(n *graph.Node) bool {
	return n.Is("MatMul", "com.microsoft.FusedMatMul")
}

// isConstant reports a value known at load time, through copies.
func (f *finder) isConstant(v *graph.Value) bool {
	v = f.first(v)
	return v != nil && v.Tensor != nil
}

func (f *finder) isFloat(v *graph.Value) bool {
	switch f.shapes.Of(v).DType {
	case onnx.Tensor_FLOAT, onnx.Tensor_FLOAT16, onnx.Tensor_BFLOAT16, onnx.Tensor_DOUBLE:
		return true
	}
	return false
}

// leadsToMatMul reports whether the value comes from a matmul of two
// activations of rank 3 or more, through nodes that scores pass through.
func (f *finder) leadsToMatMul(v *graph.Value, depth int) bool {
	return f.within("leads to a matmul", f.first(v), depth, func() bool {
		n := f.maker(v)
		switch {
		case n == nil || depth == 0:
			return false
		case isMatMul(n):
			return f.shapes.Of(n.Input(1)).Rank >= 3 && !f.isConstant(n.Input(1))
		case n.Is("Cast", "Transpose", "Tanh", "Clip") || reshapes(n):
			return f.leadsToMatMul(n.Input(0), depth-1)
		case n.Is("Max"):
			return f.leadsToMatMul(n.Input(0), depth-1) || f.leadsToMatMul(n.Input(1), depth-1)
		case n.Is("Mul", "Div"):
			x, _, ok := f.scalarFactor(n)
			if !ok {
				_, x = f.headFactor(n)
			}
			return x != nil && f.leadsToMatMul(x, depth-1)
		case n.Is("Add"):
			return f.leadsToMatMul(n.Input(0), depth-1) || f.leadsToMatMul(n.Input(1), depth-1)
		case n.Is("Where"):
			return f.leadsToMatMul(n.Input(1), depth-1) || f.leadsToMatMul(n.Input(2), depth-1)
		}
		return false
	})
}
