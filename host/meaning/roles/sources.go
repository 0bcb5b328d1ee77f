package roles

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
)

// View is a graph with what was recognised in it.
type View struct {
	Graph  *graph.Graph
	Shapes *graph.Shapes
	Report *blocks.Report
	Logits string // its output that is logits; "" for none
}

// Sources say which output of a decoder without a past is what one with a past is given, by name of input: keys and
// values of a layer of attention are those of the same layer, in the order of layers, and recurrent states follow one
// another in both graphs in the order in which they are made. What that leaves open, names decide ([Cache]); an input
// that nothing tells of is in no pair.
func Sources(with, without View) map[string]string {
	p := &pairing{with: with, without: without, inputs: map[*graph.Value]*graph.Value{}, taken: map[*graph.Value]bool{}}
	p.attention(false)
	p.attention(true)
	p.states()
	list := map[string]string{}
	for in, out := range p.inputs {
		list[in.Name] = out.Name
	}
	for _, in := range with.Graph.Inputs {
		if from := Namesake(in.Name, without.Graph, list); list[in.Name] == "" && from != "" {
			list[in.Name] = from
		}
	}
	return list
}

// Namesake is the output that an exporter calls as it calls an input that is a past ([Cache]), of those that no input
// has; "" for none.
func Namesake(past string, without *graph.Graph, sources map[string]string) string {
	taken := slices.Collect(maps.Values(sources))
	shared, _ := Cache(past)
	for _, out := range without.Outputs {
		if same, _ := Cache(out.Name); same == shared && !slices.Contains(taken, out.Name) {
			return out.Name
		}
	}
	return ""
}

// pairing is of inputs of one graph with outputs of another.
type pairing struct {
	with, without View
	inputs        map[*graph.Value]*graph.Value
	taken         map[*graph.Value]bool
}

// attention pairs keys and values of self attention, or of cross attention, where both graphs have as many layers.
func (p *pairing) attention(cross bool) {
	var from, to []*graph.Value // keys and values by turns
	for _, b := range handing(p.without.Report, cross) {
		key, value := handed(b)
		from = append(from, key, value)
	}
	for _, b := range taking(p.with.Report, cross) {
		key, value := given(b)
		to = append(to, key, value)
	}
	p.pair(to, from)
}

// handing are the layers that hand out keys and values, of those that share them the first.
func handing(r *blocks.Report, cross bool) []*blocks.Block {
	return layers(r, cross, handed)
}

// handed are the outputs that hand out keys and values of a block without a past; nil for none.
func handed(b *blocks.Block) (key, value *graph.Value) {
	w := b.Wiring
	switch {
	case w.PastKey != nil:
		return nil, nil
	case w.LeavingKey != nil && w.LeavingValue != nil:
		return w.LeavingKey, w.LeavingValue
	case w.PresentKey != nil && w.PresentValue != nil && w.PresentKey.IsOutput && w.PresentValue.IsOutput:
		return w.PresentKey, w.PresentValue
	}
	return beside(w.Key), beside(w.Value)
}

// beside is the one output that has the elements of a value, or some of them; nil for none and for several.
func beside(v *graph.Value) (found *graph.Value) {
	seen, several := map[*graph.Value]bool{}, false
	var walk func(v *graph.Value, depth int)
	walk = func(v *graph.Value, depth int) {
		if v == nil || depth == 0 || seen[v] {
			return
		}
		v.Graph.Spend(1 + len(v.Uses))
		seen[v] = true
		if v.IsOutput && v.Graph.Parent == nil {
			several = several || found != nil && found != v
			found = v
		}
		if n := v.Producer; n.Is(moving...) {
			walk(n.Input(0), depth-1)
		}
		for _, u := range v.Uses {
			if u.Index == 0 && u.Node.Is(moving...) {
				walk(u.Node.Output(0), depth-1)
			}
		}
	}
	walk(v, maxDepth)
	if several {
		return nil
	}
	return found
}

// moving keep elements as they are, but for some that are left out or padded.
var moving = []string{"Cast", "Identity", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}

// taking are the layers that inputs bring keys and values, of those that share them the first.
func taking(r *blocks.Report, cross bool) []*blocks.Block { return layers(r, cross, given) }

func layers(r *blocks.Report, cross bool,
	sides func(*blocks.Block) (key, value *graph.Value)) (list []*blocks.Block) {
	seen := map[*graph.Value]bool{}
	for _, b := range r.Blocks {
		if b.Attention == nil || (b.Attention.Type == "cross") != cross || b.Wiring.Graph.Parent != nil {
			continue
		}
		if key, value := sides(b); key != nil && value != nil && !seen[key] {
			list, seen[key] = append(list, b), true
		}
	}
	return list
}

// given are the inputs that bring keys and values of earlier tokens, or of an encoder's output; nil for none.
func given(b *blocks.Block) (key, value *graph.Value) {
	w := b.Wiring
	for _, pair := range [][2]*graph.Value{{w.PastKey, w.PastValue}, {origin(w.Key), origin(w.Value)}} {
		if key, value = pair[0], pair[1]; key != nil && value != nil && key.IsInput && value.IsInput {
			return key, value
		}
	}
	return nil, nil
}

// Origin finds the block that makes what another takes in as a past: decoders exported with a past have no projections
// of the encoder's output, because its keys and values come in from the decoder without one. It is the same layer
// there; nil for a block that makes its own keys, and where the graphs have not the same layers.
func Origin(b *blocks.Block, with, without *blocks.Report) *blocks.Block {
	cross := b.Attention.Type == "cross"
	takes, hands := taking(with, cross), handing(without, cross)
	key, _ := given(b)
	if len(takes) != len(hands) || key == nil {
		return nil
	}
	for i, other := range takes {
		if same, _ := given(other); same != key {
			continue
		}
		if o, a := hands[i].Attention, other.Attention; o.KVHeads == a.KVHeads && o.HeadSize == a.HeadSize {
			return hands[i]
		}
	}
	return nil
}

// pair notes inputs with outputs, in their order, where they may be one another.
func (p *pairing) pair(inputs, outputs []*graph.Value) {
	if len(inputs) != len(outputs) {
		return
	}
	for i, in := range inputs {
		if !p.fit(in, outputs[i]) {
			return
		}
	}
	for i, in := range inputs {
		p.inputs[in], p.taken[outputs[i]] = outputs[i], true
	}
}

// fit reports an output that has the type, the rank and the known lengths of an input.
func (p *pairing) fit(in, out *graph.Value) bool {
	a, b := p.with.Shapes.Of(in), p.without.Shapes.Of(out)
	if a.Rank < 2 || b.Rank >= 0 && (a.Rank != b.Rank || a.DType != b.DType) {
		return false
	}
	for i := range b.Dims {
		x, fixed := a.Dims[i].Const()
		y, too := b.Dims[i].Const()
		if fixed && too && x != y && i > 0 {
			return false
		}
	}
	return true
}

// states pairs what no recognised attention reads. An earlier input has more outputs made of it, and an earlier output
// is made of fewer nodes; of those that may be one another, each must be before the next.
func (p *pairing) states() {
	var inputs, outputs []ordered
	roles := Find(p.with.Graph, p.with.Shapes, p.with.Report)
	var open []*graph.Value
	for _, v := range p.with.Graph.Inputs {
		is := roles.Of(v)
		if p.inputs[v] == nil && v.Tensor == nil && roles.isNumber(v) && (is == Other || is == State || is == Past) {
			open = append(open, v)
		}
	}
	of := madeOf(p.with.Graph, open)
	for i, v := range open {
		reached := 0
		for _, out := range p.with.Graph.Outputs {
			if from := of[out]; from != nil && from.Bit(i) != 0 {
				reached++
			}
		}
		inputs = append(inputs, ordered{v, -reached})
	}
	for _, v := range p.without.Graph.Outputs {
		if !p.taken[v] && v.Name != p.without.Logits {
			outputs = append(outputs, ordered{v, nodesOf(v)})
		}
	}
	for len(inputs) > 0 {
		some, others := p.alike(inputs[0], inputs, outputs)
		p.follow(some, others)
		inputs = slices.DeleteFunc(inputs, func(x ordered) bool { return slices.Contains(some, x) })
	}
}

// ordered is a value with its place in the order.
type ordered struct {
	value *graph.Value
	at    int
}

// alike are the inputs and outputs that may be one another, from one on.
func (p *pairing) alike(first ordered, inputs, outputs []ordered) (some, others []ordered) {
	some = []ordered{first}
	for grown := true; grown; {
		grown = false
		take := func(from []ordered, list *[]ordered, fits func(ordered) bool) {
			for _, x := range from {
				if !slices.Contains(*list, x) && fits(x) {
					*list, grown = append(*list, x), true
				}
			}
		}
		take(outputs, &others, func(out ordered) bool {
			return slices.ContainsFunc(some, func(in ordered) bool { return p.fit(in.value, out.value) })
		})
		take(inputs, &some, func(in ordered) bool {
			return slices.ContainsFunc(others, func(out ordered) bool { return p.fit(in.value, out.value) })
		})
	}
	return some, others
}

// follow pairs inputs and outputs by their order, where each has a place of its own.
func (p *pairing) follow(inputs, outputs []ordered) {
	values := func(list []ordered) (sorted []*graph.Value) {
		list = slices.Clone(list)
		slices.SortFunc(list, func(a, b ordered) int { return cmp.Compare(a.at, b.at) })
		for i, x := range list {
			if i > 0 && list[i-1].at == x.at {
				return nil
			}
			sorted = append(sorted, x.value)
		}
		return sorted
	}
	p.pair(values(inputs), values(outputs))
}

// nodesOf counts the nodes that make a value.
func nodesOf(v *graph.Value) int {
	seen := map[*graph.Node]bool{}
	var read func(n *graph.Node)
	add := func(v *graph.Value) {
		if v == nil || v.Producer == nil || seen[v.Producer] {
			return
		}
		seen[v.Producer] = true
		read(v.Producer)
	}
	read = func(n *graph.Node) {
		n.Graph.Spend(1 + len(n.In))
		for _, in := range n.In {
			add(in)
		}
		for _, sub := range n.Subgraphs {
			for _, inner := range sub.Nodes {
				read(inner)
			}
		}
	}
	add(v)
	return len(seen)
}

// Pasts are the inputs that recognised attention reads as keys and values, by the axis that earlier tokens, or an
// encoder's, lie along; -1 where that is not known.
func Pasts(r *blocks.Report) map[*graph.Value]int {
	pasts := map[*graph.Value]int{}
	for _, cross := range []bool{false, true} {
		for _, b := range taking(r, cross) {
			key, value := given(b)
			axis := strings.IndexByte(b.Attention.PastLayout, 's')
			pasts[key], pasts[value] = axis, axis
		}
	}
	return pasts
}
