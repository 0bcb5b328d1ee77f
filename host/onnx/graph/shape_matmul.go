package graph

import (
	"slices"
	"strings"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

func productRules() map[string]func(*call) {
	return map[string]func(*call){
		"MatMul":        func(c *call) { c.set(0, c.s.multiplied(c.in(0), c.in(1), onnx.Tensor_UNDEFINED)) },
		"MatMulInteger": func(c *call) { c.set(0, c.s.multiplied(c.in(0), c.in(1), onnx.Tensor_INT32)) },
		"QLinearMatMul": func(c *call) { c.set(0, c.s.multiplied(c.in(0), c.in(3), c.in(7).DType)) },
		"Gemm":          gemmRule,
		"Einsum":        einsumRule,
		"Det": func(c *call) {
			if x := c.in(0); x.Rank >= 2 {
				c.set(0, shaped(x.DType, x.Dims[:x.Rank-2]...))
			}
		},
	}
}

// multiplied is the product of two tensors as numpy multiplies them: vectors
// are rows on the left and columns on the right, and leading axes broadcast.
func (s *Shapes) multiplied(a, b Fact, t onnx.Tensor_DataType) Fact {
	if t == onnx.Tensor_UNDEFINED {
		t = a.DType
		if t == onnx.Tensor_UNDEFINED {
			t = b.DType
		}
	}
	if a.Rank < 1 || b.Rank < 1 {
		return unranked(t)
	}
	left, right := a, b
	if left.Rank == 1 {
		left = shaped(t, DimInt(1), a.Dims[0])
	}
	if right.Rank == 1 {
		right = shaped(t, b.Dims[0], DimInt(1))
	}
	s.equate(left.Dim(-1), right.Dim(-2))
	_, dims := s.broadcast(shaped(t, left.Dims[:left.Rank-2]...), shaped(t, right.Dims[:right.Rank-2]...))
	if a.Rank > 1 {
		dims = append(dims, left.Dim(-2))
	}
	if b.Rank > 1 {
		dims = append(dims, right.Dim(-1))
	}
	return shaped(t, dims...)
}

// matrix is f with its last two axes in turn when asked.
func matrix(f Fact, turn bool) Fact {
	if !turn || f.Rank < 2 {
		return f
	}
	f = like(f, onnx.Tensor_UNDEFINED)
	f.Dims = slices.Clone(f.Dims)
	n := f.Rank
	f.Dims[n-1], f.Dims[n-2] = f.Dims[n-2], f.Dims[n-1]
	return f
}

func gemmRule(c *call) {
	a := matrix(c.in(0), c.n.Int("transA", 0) != 0)
	b := matrix(c.in(1), c.n.Int("transB", 0) != 0)
	c.set(0, shaped(a.DType, matrixDim(a, 0), matrixDim(b, 1)))
}

// matrixDim is a length of a tensor that must be a matrix.
func matrixDim(f Fact, axis int) Dim {
	if f.Rank != 2 {
		return Dim{}
	}
	return f.Dims[axis]
}

func einsumRule(c *call) {
	t := c.in(0).DType
	dims, ok := c.einsum(strings.ReplaceAll(c.n.str("equation", ""), " ", ""))
	if !ok {
		c.set(0, unranked(t))
		return
	}
	c.set(0, shaped(t, dims...))
}

// einsum finds the lengths that letters and the ellipsis stand for, and from
// them the result's.
func (c *call) einsum(equation string) (dims []Dim, ok bool) {
	const dots = "..."
	left, right, explicit := strings.Cut(equation, "->")
	terms := strings.Split(left, ",")
	if len(terms) != len(c.n.In) || len(equation) > 1024 {
		return nil, false
	}
	letters := map[rune]Dim{}
	var ellipsis []Fact
	for i, term := range terms {
		f := c.in(i)
		before, after, has := strings.Cut(term, dots)
		named := len(before) + len(after)
		if f.Rank < named || !has && f.Rank != named {
			return nil, false
		}
		for k, l := range before {
			letters[l] = c.s.meet(orOne(letters, l), f.Dims[k])
		}
		for k, l := range after {
			letters[l] = c.s.meet(orOne(letters, l), f.Dims[f.Rank-len(after)+k])
		}
		if has {
			ellipsis = append(ellipsis, shaped(f.DType, f.Dims[len(before):f.Rank-len(after)]...))
		}
	}
	_, spread := c.s.broadcast(ellipsis...)
	if !explicit {
		right = dots + implicit(left)
	}
	before, after, has := strings.Cut(right, dots)
	for _, l := range before {
		dims = append(dims, letters[l])
	}
	if has {
		dims = append(dims, spread...)
	}
	for _, l := range after {
		dims = append(dims, letters[l])
	}
	return dims, true
}

func orOne(letters map[rune]Dim, l rune) Dim {
	if d, ok := letters[l]; ok {
		return d
	}
	return DimInt(1)
}

// implicit are the letters that occur once, in order: the result of an equation
// that names none.
func implicit(left string) string {
	var once []rune
	for _, l := range left {
		if l != ',' && l != '.' && strings.Count(left, string(l)) == 1 {
			once = append(once, l)
		}
	}
	slices.Sort(once)
	return string(once)
}
