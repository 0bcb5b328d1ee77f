package session

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/capability"
)

// fusedValues are the values that fusions name, as the model has them.
func fusedValues(g *graph.Graph, fusions []plan.Fusion) map[string]*graph.Value {
	named := map[string]*graph.Value{}
	for _, f := range fusions {
		names := []string{f.Sum[0], f.Sum[1], f.Scale, f.Bias, f.Gelu, f.Output}
		if a := f.Attention; a != nil {
			names = append(names, a.Query, a.Key, a.Value, a.Mask)
		}
		for _, name := range names {
			if v := g.Lookup(name); v != nil {
				named[name] = v
			}
		}
	}
	return named
}

// fused is what stands now for a value that a fusion names, or nil.
func (r *rewriter) fused(name string) *graph.Value {
	v := r.Latest(r.named[name])
	if v == nil || r.main.Lookup(v.Name) != v {
		return nil
	}
	return v
}

// fuse does what ONNX Runtime does between matmuls of integers, so that what it sees of them is the same, and what
// operators do with its bits.
func (r *rewriter) fuse(fusions []plan.Fusion) (err error) {
	r.gelus, r.norms = map[*graph.Value]*graph.Value{}, map[*graph.Value]*norm{}
	for _, f := range fusions {
		switch {
		case f.Attention != nil:
			err = r.attendNodewise(f)
		case f.Gelu != "":
			r.gelu(f)
		case f.Apart:
			r.normaliseAfter(f)
		default:
			err = r.normalise(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// normalise puts the node in place that ONNX Runtime makes of a sum and its normalisation. It does so where it knows
// that both summands have one shape, and of an operator's results it does not.
func (r *rewriter) normalise(f plan.Fusion) error {
	g := r.main
	a, b, scale, old := r.fused(f.Sum[0]), r.fused(f.Sum[1]), r.fused(f.Scale), r.fused(f.Output)
	if a == nil || b == nil || scale == nil || old == nil || f.Bias != "" && r.fused(f.Bias) == nil {
		return fmt.Errorf("ONNX Runtime normalises a sum to %s of values that the model does not have", f.Output)
	}
	in := []*graph.Value{a, b, scale}
	if f.Bias != "" {
		in = append(in, r.fused(f.Bias))
	}
	g.ImportOpset("com.microsoft", 1)
	n, err := r.AddNode(g, "com.microsoft", "SkipLayerNormalization", in, []string{g.FreshName("graft_normal")}, "epsilon",
		float64(f.Epsilon))
	if err != nil {
		return err
	}
	r.ReplaceUnnamed(old, n.Out[0])
	return nil
}

// norm is a sum of a matmul's result with a residual, and its normalisation.
type norm struct {
	residual, scale, bias, output *graph.Value
	epsilon                       float64
}

// normaliseAfter notes a normalisation of a sum with a matmul's result that nothing else reads: one axis of a
// constant length, along which both summands and the factors lie.
func (r *rewriter) normaliseAfter(f plan.Fusion) {
	for i := range f.Sum {
		x, residual := r.fused(f.Sum[i]), r.fused(f.Sum[1-i])
		n := &norm{residual: residual, scale: r.fused(f.Scale), bias: r.fused(f.Bias), output: r.fused(f.Output),
			epsilon: float64(f.Epsilon)}
		if x == nil || residual == nil || n.scale == nil || n.bias == nil || n.output == nil || x.IsOutput ||
			len(x.Uses) != 1 ||
			!multipliesIntegers(x.Producer) {
			continue
		}
		columns := r.columns(x)
		s, t := r.shapes.Of(x), r.shapes.Of(residual)
		if columns == 0 || s.Rank != t.Rank || !slices.EqualFunc(s.Dims, t.Dims, graph.Dim.Equal) {
			continue
		}
		if !r.isRow(n.scale, columns) || !r.isRow(n.bias, columns) {
			continue
		}
		r.norms[x] = n
		return
	}
}

// isRow reports a value of floats with that many elements along one axis.
func (r *rewriter) isRow(v *graph.Value, columns int64) bool {
	s := r.shapes.Of(v)
	if s.Rank != 1 || s.DType != onnx.Tensor_FLOAT {
		return false
	}
	n, known := s.Dims[0].Const()
	return known && n == columns
}

// vectorColumns is what the number of columns is a multiple of: the last elements of others are none of a vector, and
// ONNX Runtime computes those in another way.
const vectorColumns = 16

// columns is the length of a value's last axis where it is constant and whole vectors, else 0.
func (r *rewriter) columns(v *graph.Value) int64 {
	s := r.shapes.Of(v)
	if s.Rank < 1 {
		return 0
	}
	if n, known := s.Dims[s.Rank-1].Const(); known && n > 0 && n%vectorColumns == 0 {
		return n
	}
	return 0
}

// gelu notes what is a GELU of a matmul's result that nothing else reads.
func (r *rewriter) gelu(f plan.Fusion) {
	x, y := r.fused(f.Gelu), r.fused(f.Output)
	if x == nil || y == nil || x.IsOutput || len(x.Uses) > 2 { // once as a factor, once in the error function
		return
	}
	if r.columns(x) > 0 {
		r.gelus[x] = y
	}
}

// chainDepth is the greatest depth of a product that ONNX Runtime sums up at once, however many threads share its
// columns.
const chainDepth = 128

// attendNodewise puts one operator in the place of attention's nodes: of queries as many as keys, since ONNX Runtime
// multiplies a single row in another way.
func (r *rewriter) attendNodewise(f plan.Fusion) error {
	a := f.Attention
	q, k, v, old := r.fused(a.Query), r.fused(a.Key), r.fused(a.Value), r.fused(f.Output)
	if q == nil || k == nil || v == nil || old == nil {
		return nil
	}
	qs, ks, vs := r.shapes.Of(q), r.shapes.Of(k), r.shapes.Of(v)
	for _, s := range []graph.Fact{qs, ks, vs} {
		if s.Rank != 4 || s.DType != onnx.Tensor_FLOAT {
			return nil
		}
	}
	size, known := vs.Dims[3].Const()
	depth, told := qs.Dims[3].Const()
	if !known || !told || size < 2 || depth > chainDepth || !qs.Dims[2].Equal(ks.Dims[3]) ||
		!vs.Dims[2].Equal(ks.Dims[3]) || !qs.Dims[3].Equal(ks.Dims[2]) {
		return nil
	}
	for axis := range 2 {
		if !qs.Dims[axis].Equal(ks.Dims[axis]) || !qs.Dims[axis].Equal(vs.Dims[axis]) {
			return nil
		}
	}
	in := []*graph.Value{q, k, v}
	if a.Mask != "" {
		mask := r.fused(a.Mask)
		if mask == nil || r.shapes.Of(mask).Rank != 4 || r.shapes.Of(mask).DType != onnx.Tensor_FLOAT {
			return nil
		}
		in = append(in, mask)
	}
	n, err := r.AddOperator(r.main, capability.NodewiseAttention, in, []string{r.main.FreshName("graft_attended")},
		"scale", float64(a.Scale))
	if err != nil {
		return err
	}
	r.ReplaceUnnamed(old, n.Out[0])
	return nil
}
