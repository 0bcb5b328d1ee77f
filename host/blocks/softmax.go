package blocks

import (
	"errors"
	"fmt"
	"math"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model/onnx"
)

// scores is the way from the product of query and key to the softmax.
type scores struct {
	product       *graph.Node
	scale         float64
	softcap       float64
	bias          *graph.Value
	keep          *graph.Value
	keepInverted  bool
	fill          float64
	maskAfterBias bool
}

// softmax recognises attention drawn as single nodes around a softmax.
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
	w := &Wiring{Graph: n.Graph, Anchor: n, Bias: sc.bias, Keep: sc.keep, KeepInverted: sc.keepInverted,
		Fill: sc.fill, MaskAfterBias: sc.maskAfterBias, ScoresMode: 3}
	product, probabilities, err := f.weighted(n.Output(0), w)
	if err != nil {
		return nil, err
	}
	q, k, alpha, err := f.operands(sc.product)
	if err != nil {
		return nil, err
	}
	_, v, beta, err := f.operands(product)
	if err != nil {
		return nil, err
	}
	if beta != 1 || product.Int("transB", 0) != 0 {
		return nil, errors.New("the product of probabilities and values is scaled or transposed")
	}
	if sc.product.Int("transB", 0) == 0 { // keys arrive as (..., size, positions)
		last := len(k.dims) - 1
		k.dims[last-1], k.dims[last] = relabel(k.dims[last-1], "d"), relabel(k.dims[last], "s")
	}
	out := view{value: product.Output(0), scale: 1}
	if out.dims, err = f.start(product.Output(0)); err != nil {
		return nil, err
	}
	b := &Block{Kind: "attention", Node: n.Path(), Wiring: w}
	b.Attention = &Attention{Form: "nodes", Softcap: sc.softcap, Scores: probabilities != nil}
	w.Scores = probabilities
	return b, f.finish(b, q, k, v, out, sc.scale*alpha)
}

func relabel(d []axis, role string) []axis {
	if len(d) == 0 {
		return d
	}
	return []axis{{role, d[0].size}}
}

// start labels the dimensions of an operand of a batched product.
func (f *finder) start(v *graph.Value) ([][]axis, error) {
	s := f.shapes.Of(v)
	switch s.Rank {
	case 4:
		return [][]axis{{{"b", s.Dims[0]}}, {{"h", s.Dims[1]}}, {{"s", s.Dims[2]}}, {{"d", s.Dims[3]}}}, nil
	case 3:
		return [][]axis{{{"bh", s.Dims[0]}}, {{"s", s.Dims[1]}}, {{"d", s.Dims[2]}}}, nil
	}
	return nil, fmt.Errorf("%s has rank %d where attention's products have 3 or 4", describe(v), s.Rank)
}

// operands are the labelled inputs of a batched product.
func (f *finder) operands(n *graph.Node) (a, b view, alpha float64, err error) {
	alpha = 1
	if n.Op() == "com.microsoft.FusedMatMul" {
		alpha = float64(n.Float("alpha", 1))
		if n.Int("transA", 0)+n.Int("transBatchA", 0)+n.Int("transBatchB", 0) != 0 {
			return a, b, 0, fmt.Errorf("%s transposes what attention does not", n)
		}
	}
	a = view{value: n.Input(0), scale: 1}
	b = view{value: n.Input(1), scale: 1}
	if a.dims, err = f.start(a.value); err != nil {
		return a, b, 0, err
	}
	b.dims, err = f.start(b.value)
	return a, b, alpha, err
}

// scores walks from the softmax up to the product of query and key.
func (f *finder) scores(v *graph.Value) (*scores, error) {
	sc := &scores{scale: 1, fill: math.Inf(-1)}
	for {
		n := v.Producer
		switch {
		case n == nil:
			return nil, fmt.Errorf("its input %s is no product of query and key", v.Name)
		case isProduct(n):
			if f.shapes.Of(n.Input(1)).Rank < 3 || n.Input(1).Tensor != nil {
				return nil, fmt.Errorf("its scores come from %s, a product with a constant and not of query and key", n)
			}
			sc.product = n
			return sc, nil
		case n.Is("Identity", "Dropout") || n.Is("Cast") && f.isFloat(n.Input(0)):
			v = n.Input(0)
		case n.Is("Reshape", "Squeeze", "Unsqueeze"):
			if sc.bias != nil || sc.keep != nil || f.shapes.Of(n.Output(0)).Rank > 4 {
				return nil, fmt.Errorf("%s reshapes the scores before their mask", n)
			}
			v = n.Input(0)
		case n.Is("Add"):
			if sc.bias != nil {
				return nil, fmt.Errorf("two additive masks or biases in a row (%s)", n)
			}
			if err := sc.unscaled(n); err != nil {
				return nil, err
			}
			a, b := n.Input(0), n.Input(1)
			if !f.leadsToProduct(a, 32) || f.leadsToProduct(b, 32) && f.addsLater(a, b) {
				a, b = b, a
			}
			if !f.leadsToProduct(a, 32) {
				return nil, fmt.Errorf("neither side of %s is a product of query and key", n)
			}
			if err := f.fits(b, n.Output(0)); err != nil {
				return nil, err
			}
			v, sc.bias = a, b
			sc.maskAfterBias = sc.keep != nil
		case n.Is("Where"):
			if sc.keep != nil {
				return nil, fmt.Errorf("two boolean masks in a row (%s)", n)
			}
			if err := sc.unscaled(n); err != nil {
				return nil, err
			}
			if err := f.where(sc, n, &v); err != nil {
				return nil, err
			}
		case n.Is("Mul", "Div"):
			x, c, ok := f.scalarFactor(n)
			if !ok {
				return nil, fmt.Errorf("its scores pass through %s, whose factor is not a number known at load time", n)
			}
			if x.Producer.Is("Tanh") {
				inner := x.Producer.Input(0).Producer
				y, d, ok := (*graph.Value)(nil), 0.0, false
				if inner.Is("Mul", "Div") {
					y, d, ok = f.scalarFactor(inner)
				}
				if !ok || math.Abs(d*c-1) > 1e-5 || sc.softcap != 0 || sc.scale != 1 {
					return nil, fmt.Errorf("its scores pass through %s, which is no soft cap", x.Producer)
				}
				v, sc.softcap = y, c
				continue
			}
			v, sc.scale = x, sc.scale*c
		default:
			return nil, fmt.Errorf("its scores come from %s %s and not from a product of query and key", n.Op(), n)
		}
	}
}

// unscaled refuses a mask under a scale or a soft cap: both change what it adds.
func (sc *scores) unscaled(mask *graph.Node) error {
	if sc.scale != 1 || sc.softcap != 0 {
		return fmt.Errorf("its scores are scaled or capped after their mask %s", mask)
	}
	return nil
}

// where reads a boolean mask.
func (f *finder) where(sc *scores, n *graph.Node, v **graph.Value) error {
	x, fill := n.Input(1), n.Input(2)
	c, ok := f.scalar(fill)
	if !ok {
		x, fill = n.Input(2), n.Input(1)
		if c, ok = f.scalar(fill); !ok {
			return fmt.Errorf("%s hides scores behind a value that is not a number known at load time", n)
		}
		sc.keepInverted = true
	}
	if c > -1e3 {
		return fmt.Errorf("%s puts %g in place of scores, which hides nothing", n, c)
	}
	if err := f.fits(n.Input(0), n.Output(0)); err != nil {
		return err
	}
	sc.keep, sc.fill = n.Input(0), c
	*v = x
	return nil
}

// fits checks that a mask of rank up to 4 lies over scores of rank 4, or over
// scores of rank 3 the same way for every batch and head.
func (f *finder) fits(mask, over *graph.Value) error {
	m, o := f.shapes.Of(mask), f.shapes.Of(over)
	if m.Rank < 0 || m.Rank > 4 {
		return fmt.Errorf("the mask %s has rank %d where at most 4 is read", describe(mask), m.Rank)
	}
	if o.Rank == 3 && m.Rank == 3 && !isOne(m.Dims[0]) {
		return fmt.Errorf("the mask %s lies over batch and heads in one axis", describe(mask))
	}
	if o.Rank < 3 || m.Rank > o.Rank {
		return fmt.Errorf("the mask %s of rank %d does not lie over scores of rank %d", describe(mask), m.Rank, o.Rank)
	}
	return nil
}

func isProduct(n *graph.Node) bool {
	return n.Is("MatMul", "com.microsoft.FusedMatMul")
}

func (f *finder) isFloat(v *graph.Value) bool {
	switch f.shapes.Of(v).DType {
	case onnx.Tensor_FLOAT, onnx.Tensor_FLOAT16, onnx.Tensor_BFLOAT16, onnx.Tensor_DOUBLE:
		return true
	}
	return false
}

// leadsToProduct reports whether the value comes from a product of two
// activations of rank 3 or more, through nodes that scores pass through.
func (f *finder) leadsToProduct(v *graph.Value, depth int) bool {
	n := v.Producer
	switch {
	case n == nil || depth == 0:
		return false
	case isProduct(n):
		return f.shapes.Of(n.Input(1)).Rank >= 3 && n.Input(1).Tensor == nil
	case n.Is("Identity", "Dropout", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Tanh"):
		return f.leadsToProduct(n.Input(0), depth-1)
	case n.Is("Mul", "Div"):
		x, _, ok := f.scalarFactor(n)
		return ok && f.leadsToProduct(x, depth-1)
	case n.Is("Add"):
		return f.leadsToProduct(n.Input(0), depth-1) || f.leadsToProduct(n.Input(1), depth-1)
	case n.Is("Where"):
		return f.leadsToProduct(n.Input(1), depth-1) || f.leadsToProduct(n.Input(2), depth-1)
	}
	return false
}

// addsLater decides between two operands that both come from products: the
// scores are the one that differs between queries and keys of every head.
func (f *finder) addsLater(a, b *graph.Value) bool {
	return f.shapes.Of(a).Rank < f.shapes.Of(b).Rank
}

// weighted walks from the softmax down to the product with the values. The
// second result is the probabilities, when something else reads them.
func (f *finder) weighted(v *graph.Value, w *Wiring) (product *graph.Node, read *graph.Value, err error) {
	for {
		var next *graph.Node
		others := v.IsOutput
		for _, u := range v.Uses {
			n := u.Node
			switch {
			case n.Is("Shape", "Size"):
			case isProduct(n) && u.Index == 0 && product == nil:
				product = n
			case n.Is("IsNaN") && f.clearsNaN(n, v):
				w.ZeroRows = true
			case n.Is("Where") && w.clears(f, n, v):
				next = n
			case (n.Is("Identity", "Dropout") || f.sameTypeCast(n)) && next == nil:
				next = n
			default:
				others = true
			}
		}
		switch {
		case product != nil && next == nil:
			if others {
				return product, v, nil
			}
			return product, nil, nil
		case product != nil || next == nil:
			return nil, nil, errors.New("its probabilities go into no product with values")
		case others:
			return nil, nil, errors.New("its probabilities are read before they are cleared or copied")
		}
		v = next.Output(0)
	}
}

// clearsNaN reports IsNaN(v) feeding Where(IsNaN(v), 0, v) and nothing else.
func (f *finder) clearsNaN(isNaN *graph.Node, v *graph.Value) bool {
	out := isNaN.Output(0)
	for _, u := range out.Uses {
		if !u.Node.Is("Where") || u.Index != 0 || u.Node.Input(2) != v {
			return false
		}
		if c, ok := f.scalar(u.Node.Input(1)); !ok || c != 0 {
			return false
		}
	}
	return !out.IsOutput && len(out.Uses) > 0
}

func (w *Wiring) clears(f *finder, where *graph.Node, v *graph.Value) bool {
	cond := where.Input(0).Producer
	return where.Input(2) == v && cond.Is("IsNaN") && cond.Input(0) == v && f.clearsNaN(cond, v)
}
