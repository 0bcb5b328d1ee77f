package padding

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

var windows = set("Conv", "ConvTranspose", "ConvInteger", "QLinearConv", "AveragePool", "MaxPool", "LpPool",
	"com.microsoft.FusedConv")

// Neighbours says how an operator by itself computes a position of a sequence from others: "" for one that does not.
func Neighbours(n *graph.Node) string {
	switch {
	case n.Is("LSTM", "GRU", "RNN", "Scan", "Loop"):
		return "goes from token to token"
	case windows[n.Op()]:
		kernel, _ := n.Ints("kernel_shape")
		if len(kernel) == 0 || slices.ContainsFunc(kernel, func(k int64) bool { return k != 1 }) {
			return "reads neighbouring tokens"
		}
	}
	return ""
}

// Mixes says which node computes what visible tokens get from hidden ones too, so that a text's answer depends on how
// much padding stands behind it: "" where none does. tokens is the input (B, S), mask that which hides some. What
// reads earlier tokens alone does not see padding, which stands behind a text. A node that is not known to keep tokens
// apart is named too.
func Mixes(g *graph.Graph, shapes *graph.Shapes, report *blocks.Report, tokens, mask *graph.Value) (why string) {
	m := &mixing{shapes: shapes, masks: newMasks(g, shapes), positions: shapes.Of(tokens).Dim(1), mask: mask,
		states: map[*graph.Value]state{}, blocks: map[string]*blocks.Block{}}
	if len(m.positions.Symbols()) == 0 {
		return ""
	}
	if len(mask.Uses) == 0 && !mask.IsOutput {
		return "nothing reads " + mask.Name
	}
	m.masks.follow(mask, false)
	for _, b := range report.Blocks {
		a, w := b.Attention, b.Wiring
		m.blocks[b.Node] = b
		if a != nil && w != nil && !a.Causal && w.Lengths == nil && m.counts(w.AllKeys) &&
			(a.Mask == nil || m.shows(w)) {
			return fmt.Sprintf("%s sees hidden keys", b.Node)
		}
	}
	g.Walk(func(n *graph.Node) {
		g.Spend(1 + len(n.In))
		if why != "" {
			return
		}
		how := m.node(n)
		_, window := n.Ints("kernel_shape")
		switch {
		case how != "" || n.Input(0) == nil || !m.real(n.Input(0)) || window && m.apart(n):
		case Neighbours(n) != "":
			how = Neighbours(n)
		case n.Is("DFT", "STFT") && slices.ContainsFunc(shapes.Of(n.Input(0)).Dims, m.counts):
			how = readsAll
		case n.Is("Pad", "Concat") && m.moves(n):
			how = "moves tokens to their neighbours"
		}
		if how != "" {
			why = fmt.Sprintf("%s (%s) %s", n, n.Op(), how)
		}
	})
	return why
}

// faint is added to scores that weigh nothing beside others in float32: exp(-100) is below its numbers.
const faint = -100

// shows reports attention of which no mask lowers the scores of hidden keys to nothing.
func (m *mixing) shows(w *blocks.Wiring) bool {
	for _, bias := range w.Biases {
		l := m.masks.lane(bias.Value, 0)
		if l == nil {
			return false
		}
		hidden, ok1 := l.hidden.inside()
		visible, ok2 := l.visible.inside()
		if l.token >= 0 && !(ok1 && ok2 && score(bias, hidden)-score(bias, visible) > faint) {
			return false
		}
	}
	if w.BoolMask == nil {
		return len(w.Biases) > 0
	}
	l := m.masks.lane(w.BoolMask, 0)
	return l != nil && (l.token < 0 || l.hidden == l.visible)
}

// mixing finds what reads the tokens of a sequence together.
type mixing struct {
	shapes    *graph.Shapes
	masks     *masks
	positions graph.Dim
	mask      *graph.Value
	states    map[*graph.Value]state
	blocks    map[string]*blocks.Block // by node
}

func (m *mixing) counts(d graph.Dim) bool { return has(d, m.positions) }

// real reports a value of numbers that are not whole, or of an unknown type.
func (m *mixing) real(v *graph.Value) bool {
	kind := m.shapes.Of(v).DType
	return kind != onnx.Tensor_INT64 && kind != onnx.Tensor_INT32 && kind != onnx.Tensor_BOOL
}

// apart reports a window that hidden tokens do not stand in: it does not run along tokens, reaches back alone, or what
// it reads of hidden tokens is zeros, as what stands around a text is.
func (m *mixing) apart(n *graph.Node) bool {
	in := m.shapes.Of(n.Input(0))
	kernel, _ := n.Ints("kernel_shape")
	pads, _ := n.Ints("pads")
	if in.Rank < 3 {
		return in.Rank >= 0
	}
	spatial := in.Dims[2:]
	along := -1 // the axis of tokens
	for i, d := range spatial {
		if (!d.Known() || m.counts(d)) && (i >= len(kernel) || kernel[i] != 1) {
			if along >= 0 || !d.Known() {
				return false
			}
			along = i
		}
	}
	if along < 0 {
		return true
	}
	if pad := n.Attr("auto_pad"); !n.Is("Conv") || len(kernel) != len(spatial) || len(pads) != 2*len(kernel) ||
		pad != nil && string(pad.GetS()) != "NOTSET" || !spatial[along].Equal(m.positions) {
		return false
	}
	step := func(name string) int64 {
		if list, ok := n.Ints(name); ok && along < len(list) {
			return list[along]
		}
		return 1
	}
	if step("strides") != 1 {
		return false
	}
	reach := (kernel[along] - 1) * step("dilations")
	before, behind := pads[along], pads[along+len(kernel)]
	if before >= reach && (behind == 0 || m.cut(n.Output(0), int64(along+2))) {
		return true
	}
	return m.cleared(n.Input(0))
}

// cut reports a value of which the first elements along an axis are read alone.
func (m *mixing) cut(v *graph.Value, axis int64) bool {
	return v != nil && !v.IsOutput && !slices.ContainsFunc(v.Uses, func(u graph.Use) bool {
		starts, ok1 := u.Node.Input(1).Ints()
		axes, ok2 := u.Node.Input(3).Ints()
		return !u.Node.Is("Slice") || !ok1 || !ok2 || len(starts) != 1 || starts[0] != 0 || len(axes) != 1 ||
			axes[0] != axis && axes[0] != axis-int64(m.shapes.Of(v).Rank) ||
			!m.shapes.Of(u.Node.Output(0)).Dim(int(axis)).Equal(m.positions)
	})
}

// cleared reports a value that is 0 where a token is hidden.
func (m *mixing) cleared(v *graph.Value) bool {
	for range maxWay {
		if v == nil || v.Producer == nil ||
			!v.Producer.Is("Transpose", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Cast") &&
				!inert(v.Producer) {
			break
		}
		v = v.Producer.Input(0)
	}
	if v == nil || v.Producer == nil || !v.Producer.Is("Mul") {
		return false
	}
	return slices.ContainsFunc(v.Producer.In, func(x *graph.Value) bool {
		l := m.masks.lane(x, 0)
		return l != nil && l.token >= 0 && l.query < 0 && l.hidden.is(0)
	})
}

// moves reports rows of tokens that are put where others stand: what lacks some at one end is filled up.
func (m *mixing) moves(n *graph.Node) bool {
	for i, d := range m.shapes.Of(n.Output(0)).Dims {
		if !d.Equal(m.positions) {
			continue
		}
		if slices.ContainsFunc(n.In, func(v *graph.Value) bool {
			lacks, known := d.Add(m.shapes.Of(v).Dim(i).Mul(graph.DimInt(-1))).Const()
			return v != nil && known && lacks > 0 && m.counts(m.shapes.Of(v).Dim(i))
		}) {
			return true
		}
		if pads, ok := n.Input(1).Ints(); n.Is("Pad") && ok && i < len(pads) && pads[i] != 0 {
			return true
		}
	}
	return false
}
