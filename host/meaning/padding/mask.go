package padding

import (
	"fmt"
	"math"
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// lowest is the score above which a key counts as seen.
const lowest = -1e4

// masks finds what masks say of keys: each value that is made from a mask of tokens is followed as what it is where a
// token is hidden, and what it is where one is visible.
type masks struct {
	main   *graph.Graph
	shapes *graph.Shapes
	root   *graph.Value // the mask that is followed
	adds   bool         // it is added to scores: 0 where a token is visible, a number below all scores where it is hidden
	found  *graph.Value // a mask of tokens that the graph makes
	lanes  map[*graph.Value]*lane
}

func newMasks(g *graph.Graph, shapes *graph.Shapes) *masks {
	return &masks{main: g, shapes: shapes, lanes: map[*graph.Value]*lane{}}
}

// of finds the mask that a block's keys are hidden by, and how. Without a mask of tokens the result is nil, with a
// reason where there is another one.
func (m *masks) of(b *blocks.Block) (root *graph.Value, h Hides, why string) {
	a, w := b.Attention, b.Wiring
	h = Hides{Left: -1, Right: -1}
	if a == nil || w == nil || len(w.Hiding()) == 0 && (a.Mask == nil || len(a.Mask.Sources) == 0) {
		return nil, h, ""
	}
	switch {
	case b.Obstacle != "":
		return nil, h, b.Obstacle
	case w.Graph != m.main:
		return nil, h, "it is in a branch"
	case a.Type != "self" || w.PastKey != nil || w.PresentKey != nil || w.PresentValue != nil:
		return nil, h, "its keys are not those of its own queries alone"
	case w.Scores != nil:
		return nil, h, "its probabilities are read"
	case w.Lengths != nil:
		return nil, h, "it counts its keys"
	case w.Sinks != nil:
		return nil, h, "its softmax counts sinks"
	case w.HeadScale != nil || w.Floor != 0 || w.Wide:
		return nil, h, "its scores are scaled by head, raised, or of too few digits for a mask"
	}
	if root = m.source(b); root == nil {
		why = "its mask is not made from one input of tokens (batch, positions)"
	} else {
		m.follow(root, false)
		if h, why = m.hides(b); why != "" && m.isFloat(root) {
			m.follow(root, true)
			if added, other := m.hides(b); other == "" {
				return root, added, ""
			}
		}
	}
	if why != "" {
		if made, hides := m.made(b); made != nil {
			return made, hides, ""
		}
	}
	return root, h, why
}

func (m *masks) isFloat(v *graph.Value) bool {
	kind := m.shapes.Of(v).DType
	return kind == onnx.Tensor_FLOAT || kind == onnx.Tensor_FLOAT16
}

// follow begins with a mask.
func (m *masks) follow(root *graph.Value, adds bool) {
	if m.root != root || m.adds != adds {
		m.root, m.adds, m.lanes = root, adds, map[*graph.Value]*lane{}
	}
}

// hides says how the mask that is followed hides a block's keys.
func (m *masks) hides(b *blocks.Block) (h Hides, why string) {
	w := b.Wiring
	h = Hides{Left: -1, Right: -1, Given: m.adds}
	hides := 0
	var beyond, both float64 // what is added to scores beyond a window, and to those of hidden keys there
	for _, term := range w.Biases {
		if term.Joined || term.Windows || term.Later {
			return h, "its mask lies over batch and heads in one axis, or over windows"
		}
		l := m.lane(term.Value, 0)
		if l == nil {
			return h, fmt.Sprintf("it is not known what %s hides", term.Value.Name)
		}
		if l.token >= 0 {
			if why := m.lies(term.Value, l); why != "" {
				return h, why
			}
			x, ok := l.hidden.inside()
			if x = score(term, x); !ok || x > lowest || l.hidden.kind == band && !l.hidden.along(l.visible) {
				return h, fmt.Sprintf("%s does not hide by a number below all scores", term.Value.Name)
			}
			h.Fill, h.Adds = x, true
			hides++
		}
		beyond = single(beyond + score(term, l.visible.outside()))
		both = single(both + score(term, l.hidden.outside()))
		if why := h.positions(m, term.Value, l.visible, term.Factor, 0); why != "" {
			return h, why
		}
	}
	if w.BoolMask != nil {
		l := m.lane(w.BoolMask, 0)
		if l == nil {
			return h, fmt.Sprintf("it is not known what %s hides", w.BoolMask.Name)
		}
		hidden, visible := l.hidden, l.visible
		if w.BoolMaskInverted {
			hidden, visible = unary("Not", hidden), unary("Not", visible)
		}
		if l.token >= 0 {
			if why := m.lies(w.BoolMask, l); why != "" {
				return h, why
			}
			if x, ok := hidden.as(); !ok || x != 0 {
				return h, fmt.Sprintf("%s does not hide all keys of hidden tokens", w.BoolMask.Name)
			}
			h.Fill, h.Adds = w.Fill, false
			hides++
		}
		if why := h.positions(m, w.BoolMask, visible, 1, 1); why != "" {
			return h, why
		}
		if beyond == 0 && both == 0 {
			beyond, both = w.Fill, w.Fill
		} else {
			both = math.NaN() // some keys are hidden in two ways
		}
	}
	h.Beyond, h.Mixed = beyond, both != beyond
	if hides != 1 {
		return h, fmt.Sprintf("%d masks of tokens hide its keys", hides)
	}
	return h, ""
}

// score is what a bias adds to scores where it is x.
func score(b blocks.Bias, x float64) float64 {
	x = single(x * b.Factor)
	if b.Hides && x <= -math.MaxFloat32 {
		return math.Inf(-1)
	}
	return x
}

// positions takes what a mask says of visible tokens: nothing, a band, or a bias.
func (h *Hides) positions(m *masks, v *graph.Value, t term, factor, nothing float64) string {
	if x, ok := t.as(); ok && x == nothing {
		return ""
	}
	s := m.shapes.Of(v)
	switch t.kind {
	case band:
		yes, no := t.yes, t.no
		sees := yes == nothing && (nothing == 1 && no == 0 || nothing == 0 && no*factor <= lowest)
		if !sees || t.i != s.Rank-2 || t.j != s.Rank-1 || h.windowed() {
			return fmt.Sprintf("the band of keys that %s shows is not understood", v.Name)
		}
		h.Left, h.Right = t.left, t.right
		return ""
	case opaque:
		if nothing == 0 && factor == 1 && h.Bias == nil {
			f := m.shapes.Of(t.value)
			if f.Rank == 4 && f.Dims[0].Is(1) && f.DType == s.DType || f.Rank == 3 || f.Rank == 2 {
				h.Bias = t.value
				return ""
			}
		}
	}
	return fmt.Sprintf("what %s says beside padding is not understood", v.Name)
}

// lies says where a mask does not lie over keys, or "".
func (m *masks) lies(v *graph.Value, l *lane) string {
	s := m.shapes.Of(v)
	if l.query >= 0 {
		return fmt.Sprintf("%s hides queries as well", v.Name)
	}
	if l.token != s.Rank-1 || l.batch != s.Rank-4 {
		return fmt.Sprintf("%s does not lie over batch and keys", v.Name)
	}
	return ""
}

// source is the one input (B, S), or with axes of one between them, that a block's masks are made from, or nil.
func (m *masks) source(b *blocks.Block) *graph.Value {
	if b.Attention.Mask == nil {
		return nil
	}
	var root *graph.Value
	for _, name := range b.Attention.Mask.Sources {
		v := m.main.Lookup(name)
		if v == nil || !v.IsInput {
			return nil
		}
		if root != nil || !m.spansTokens(v) {
			return nil
		}
		if m.isMask(v) {
			root = v
		}
	}
	return root
}

// spansTokens reports a value (B, S), or with axes of one between them.
func (m *masks) spansTokens(v *graph.Value) bool {
	s := m.shapes.Of(v)
	return s.Rank >= 2 && s.Rank <= 4 &&
		!slices.ContainsFunc(s.Dims[1:s.Rank-1], func(d graph.Dim) bool { return !d.Is(1) })
}

// isMask reports such a value of a type that masks have.
func (m *masks) isMask(v *graph.Value) bool {
	switch m.shapes.Of(v).DType {
	case onnx.Tensor_INT64, onnx.Tensor_INT32, onnx.Tensor_BOOL, onnx.Tensor_FLOAT, onnx.Tensor_FLOAT16:
		return m.spansTokens(v)
	}
	return false
}

// weighed is the one input of tokens that lowers what a softmax weighs, where attention is not a block: its products
// may be of rounded numbers. It is nil where there is none.
func (m *masks) weighed() *graph.Value {
	for _, n := range m.main.Nodes {
		if !n.Is("Softmax") {
			continue
		}
		scores := n.Input(0)
		for range maxGiven {
			if scores == nil || scores.Producer == nil {
				break
			}
			sum := scores.Producer
			for _, v := range sum.In {
				if root := m.tokens(v); root != nil {
					return root
				}
			}
			scores = sum.Input(0)
		}
	}
	return nil
}

// tokens is the input of tokens that a value is made from, and nothing else that changes; nil where there is none.
func (m *masks) tokens(v *graph.Value) (root *graph.Value) {
	seen := map[*graph.Value]bool{}
	for way := []*graph.Value{v}; len(way) > 0; way = way[1:] {
		v := way[0]
		if v == nil || seen[v] {
			continue
		}
		seen[v] = true
		m.main.Spend(1)
		switch {
		case len(seen) > maxMade:
			return nil
		case v.IsInput && (root != nil || !m.isMask(v)):
			return nil
		case v.IsInput:
			root = v
		case v.Producer != nil && len(v.Producer.Subgraphs) > 0:
			return nil
		case v.Producer != nil && !v.Producer.Is("Shape", "Size"):
			way = append(way, v.Producer.In...)
		}
	}
	return root
}

// maxWay bounds how many nodes in a row are followed.
const maxWay = 256
