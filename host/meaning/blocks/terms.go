package blocks

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// added reads an additive mask or bias.
func (f *finder) added(sc *scores, n *graph.Node, at *view) error {
	if err := sc.uncapped(n); err != nil {
		return err
	}
	if len(sc.biases) > 0 && sc.boolMask != nil && !sc.maskAfterBias {
		return fmt.Errorf("a boolean mask stands between two additive ones (%s)", n)
	}
	a, b := n.Input(0), n.Input(1)
	if !f.leadsToMatMul(a, 32) || f.leadsToMatMul(b, 32) && (f.addsLater(a, b) || !f.stays(a, *at) && f.stays(b, *at)) {
		a, b = b, a
	}
	if !f.leadsToMatMul(a, 32) {
		return fmt.Errorf("neither side of %s is a matmul of query and key", n)
	}
	if sc.rounded != nil {
		return fmt.Errorf("its scores after their mask %s are rounded to float16 by %s: of a row that the mask hides "+
			"wholly nothing is left then", n, sc.rounded)
	}
	term, err := f.fits(sc, b, *at)
	if err != nil {
		return err
	}
	if err := f.longer(b, a); err != nil {
		return err
	}
	if t := f.shapes.Of(b).DType; sc.scale != 1 && t != onnx.Tensor_FLOAT {
		return fmt.Errorf("its scores are scaled after their mask %s, of a type that is not float32", n)
	}
	at.value = a
	sc.biases = append(sc.biases, term)
	sc.maskAfterBias = sc.boolMask != nil
	return nil
}

// addsLater decides between two operands that both come from matmuls: the
// scores are the one that differs between queries and keys of every head.
func (f *finder) addsLater(a, b *graph.Value) bool {
	return f.shapes.Of(a).Rank < f.shapes.Of(b).Rank
}

// stays reports a way up from scores, through views and factors, on which their axes keep to
// their places up to a matmul; positions that a product with queries gives have others.
func (f *finder) stays(v *graph.Value, at view) bool {
	at.value = v
	for range maxDetour {
		at.value = f.first(at.value)
		n := at.value.Producer
		if n == nil || isMatMul(n) {
			return n != nil && at.isScores()
		}
		if x, _, ok := f.scalarFactor(n); ok && n.Is("Mul", "Div") {
			at.value = x
			continue
		}
		next, ok := f.stepUp(at, false)
		if !ok {
			return n.Is("Add", "Where") // of which another is the scores
		}
		at = next
	}
	return false
}

// fits says how a mask lies over scores: over those of rank 4 in any way, over those of rank 3
// the same way for every batch and head, or joined; over those of rank 5 by windows of images.
func (f *finder) fits(sc *scores, mask *graph.Value, over view) (b Bias, err error) {
	m, sum, rank := f.shapes.Of(mask), f.shapes.Of(over.value), len(over.dims)
	windows := over.text() == "b0 b1 h s t"
	if !over.isScores() && !windows {
		return b, fmt.Errorf("the mask %s lies over scores whose axes could not be told apart", describe(mask))
	}
	if m.Rank < 0 || m.Rank > rank {
		return b, fmt.Errorf("the mask %s of rank %d does not lie over scores of rank %d", describe(mask), m.Rank, rank)
	}
	b = Bias{Value: f.first(mask), Factor: sc.scale}
	lead := slices.IndexFunc(m.Dims, func(d graph.Dim) bool { return !isOne(d) })
	if lead < 0 || lead >= m.Rank-2 { // the same for every batch and head
		return b, nil
	}
	switch {
	case rank == 4 || windows && m.Rank == 3:
		sc.apart = true
	case rank == 3 && sum.Dim(0).Equal(m.Dims[0]):
		b.Joined = true
	case rank == 3:
		return b, fmt.Errorf("the mask %s lies over batch and heads in one axis, of which it is not known whether it has "+
			"them all", describe(mask))
	case windows && m.Rank == 5 && isOne(m.Dims[0]) && m.Dims[1].Equal(sum.Dim(1)):
		sc.apart, b.Windows = true, true
	default:
		return b, fmt.Errorf("the mask %s does not lie over windows of images as its scores do", describe(mask))
	}
	return b, nil
}

// longer refuses a mask under which there are more scores than query and key have.
func (f *finder) longer(mask, scores *graph.Value) error {
	m, s := f.shapes.Of(mask), f.shapes.Of(scores)
	for i, d := range m.Dims {
		if n, known := d.Const(); known && n > 1 && s.Rank >= m.Rank && isOne(s.Dim(i-m.Rank)) {
			return fmt.Errorf("the mask %s has a length of %d where its scores have 1: there are more of them after it",
				describe(mask), n)
		}
	}
	return nil
}

// headFactor splits scores times a factor for each head, (H, 1, 1), in two.
func (f *finder) headFactor(n *graph.Node) (factor, x *graph.Value) {
	for i := range 2 {
		c, rest := f.shapes.Of(n.Input(i)), n.Input(1-i)
		if n.Is("Mul") && c.Rank == 3 && !isOne(c.Dims[0]) && isOne(c.Dims[1]) && isOne(c.Dims[2]) &&
			f.shapes.Of(rest).Rank == 4 {
			return n.Input(i), rest
		}
	}
	return nil, nil
}
