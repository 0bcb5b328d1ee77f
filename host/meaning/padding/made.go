package padding

import (
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// maxMade bounds how many values above a mask are tried.
const maxMade = 64

// made finds a mask of tokens that the graph makes, such as one of lengths, by which a block's keys are hidden:
// whatever it is made from, a run in which it holds anything but 0 and 1 is an error. It is nil where there is none.
func (m *masks) made(b *blocks.Block) (root *graph.Value, h Hides) {
	if v := m.found; v != nil {
		m.follow(v, false)
		if h, why := m.hides(b); why == "" {
			return v, h
		}
	}
	way := slices.Clone(b.Wiring.Hiding())
	seen := map[*graph.Value]bool{}
	for ; len(way) > 0 && len(seen) < maxMade; way = way[1:] {
		v := way[0]
		if v == nil || seen[v] || v.Producer == nil || v.Graph != m.main {
			continue
		}
		seen[v] = true
		m.main.Spend(1)
		if m.ofTokens(v) {
			m.follow(v, false)
			if h, why := m.hides(b); why == "" && m.beforeAttention(v) && m.countable(b, v) {
				m.found = v
				return v, h
			}
		}
		way = append(way, v.Producer.In...)
	}
	return nil, Hides{Left: -1, Right: -1}
}

// ofTokens reports a value that may be a mask of tokens by its type and shape.
func (m *masks) ofTokens(v *graph.Value) bool {
	s := m.shapes.Of(v)
	if s.Rank != 2 || s.DType != onnx.Tensor_INT32 && s.DType != onnx.Tensor_INT64 && s.DType != onnx.Tensor_BOOL {
		return false
	}
	for _, d := range s.Dims {
		if _, constant := d.Const(); constant || !d.Known() {
			return false
		}
	}
	return !s.Dims[0].Equal(s.Dims[1])
}

// countable reports a mask beside which rows are taken of the input that it is made from: one without axes between
// its own.
func (m *masks) countable(b *blocks.Block, root *graph.Value) bool {
	v := m.given(b, root)
	return v == nil || m.shapes.Of(v).Rank == 2
}

// beforeAttention reports a value that is made from nothing of what attention makes.
func (m *masks) beforeAttention(v *graph.Value) bool {
	seen := map[*graph.Node]bool{}
	for way := []*graph.Node{v.Producer}; len(way) > 0; {
		n := way[len(way)-1]
		way = way[:len(way)-1]
		if n == nil || seen[n] {
			continue
		}
		seen[n] = true
		m.main.Spend(1 + len(n.In))
		if len(n.Subgraphs) > 0 || n.Is("Softmax") || blocks.IsAttentionOperator(n) {
			return false
		}
		if n.Is("Shape", "Size") {
			continue // of which rows are left, lengths are read elsewhere
		}
		for _, in := range n.In {
			if in != nil {
				way = append(way, in.Producer)
			}
		}
	}
	return true
}

// given is the input of tokens that a mask is made from where the graph makes that: a program takes tokens for
// visible that are so in it, whatever the graph makes of them. It is nil where there is none. A run in which it has
// other lengths is an error.
func (m *masks) given(b *blocks.Block, root *graph.Value) *graph.Value {
	if v := m.source(b); v != nil && !root.IsInput && !namesTokens(v, maxGiven) {
		return v
	}
	return nil
}

// maxGiven bounds how many casts in a row are followed.
const maxGiven = 4

// namesTokens reports an input that looks up a table.
func namesTokens(v *graph.Value, depth int) bool {
	return slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		switch {
		case u.Node.Is("Gather"):
			return u.Index == 1
		case u.Node.Is("com.microsoft.EmbedLayerNormalization"):
			return u.Index < 2
		case u.Node.Is("Cast", "Identity") && depth > 0:
			return namesTokens(u.Node.Out[0], depth-1)
		}
		return false
	})
}
