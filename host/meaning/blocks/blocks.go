// Package blocks recognises what parts of a graph mean. It starts from what
// cannot vary, a softmax over scores or an attention operator, walks outward
// through views, scales and masks, and states facts: heads, sizes, scale, mask,
// positions, projections, past and present. Operators are chosen on the facts,
// never on the shape in which an exporter happened to write them.
package blocks

import (
	"errors"
	"slices"

	"github.com/opgraft/graft/host/onnx/graph"
)

// Block is one recognised part of a graph.
type Block struct {
	Kind      string     // "attention"
	Node      string     // path of the node it was recognised by
	Attention *Attention // facts, for Kind "attention"
	Wiring    *Wiring    // where the block is tied into its graph
	Obstacle  string     // why no operator can stand in, whatever its constraints; or ""
}

// Unrecognised is a softmax or attention operator that no block accounts for.
type Unrecognised struct {
	Node   string `json:"node"`
	Op     string `json:"op"`
	Reason string `json:"reason"`
	// Classes says that it is no attention for certain: a softmax over classes or experts,
	// which each token has of its own.
	Classes bool `json:"-"`
}

// Report accounts for every softmax and attention operator of a graph.
type Report struct {
	Blocks       []*Block
	Unrecognised []Unrecognised
}

// Attention states what an attention block computes:
//
//	softmax(softcap(scale * Q K^T) + bias, masked, and sinks) V
//
// with Q of Heads heads of HeadSize, K and V of KVHeads heads.
type Attention struct {
	Type        string       `json:"type"` // "self" or "cross"
	DType       string       `json:"dtype"`
	Heads       int64        `json:"heads"`
	KVHeads     int64        `json:"kv_heads"`
	HeadSize    int64        `json:"head_size"`
	ValueSize   int64        `json:"value_size"`
	Scale       float64      `json:"scale"`
	Softcap     float64      `json:"softcap,omitempty"`
	Sinks       bool         `json:"sinks,omitempty"` // the softmax counts a score of each head that has no value
	Causal      bool         `json:"causal"`          // a key after its query is never seen
	Window      int64        `json:"window,omitempty"`
	Mask        *Mask        `json:"mask,omitempty"`
	Positions   string       `json:"positions"` // "none", "learned", "rotary" or "relative"
	Rotary      *Rotary      `json:"rotary,omitempty"`
	Projections *Projections `json:"projections,omitempty"`
	Past        *Past        `json:"past,omitempty"`
	PastLayout  string       `json:"past_layout,omitempty"` // "bhsd": batch, heads, positions, size
	Scores      bool         `json:"scores_read,omitempty"` // something else reads the probabilities
	Form        string       `json:"form"`                  // "nodes", or the operator it stands in as
}

// Mask says how keys are hidden.
type Mask struct {
	Kinds   []string `json:"kinds"`          // "additive", "boolean", "lengths"
	Sources []string `json:"sources"`        // graph inputs the masks are made from
	PerHead bool     `json:"per_head"`       // has a row for each head
	Fill    *float64 `json:"fill,omitempty"` // score given to a key that a boolean mask hides
	Zero    bool     `json:"zero_rows"`      // a row without visible keys gives zeros
	// "relative" when a learned position bias is added, "alibi" when one of fixed slopes
	Bias string `json:"bias,omitempty"`
}

// Projections are the linear layers that make query, key, value, and take the result.
type Projections struct {
	Query  *Linear `json:"query,omitempty"`
	Key    *Linear `json:"key,omitempty"`
	Value  *Linear `json:"value,omitempty"`
	Output *Linear `json:"output,omitempty"`
}

// Linear is y = x W + b with columns [Offset, Offset+Width) of W and elements
// [BiasOffset, BiasOffset+Width) of b.
type Linear struct {
	Weight     string `json:"weight"`
	Bias       string `json:"bias,omitempty"`
	BiasOffset int64  `json:"bias_offset,omitempty"`
	Inputs     int64  `json:"inputs"`
	Offset     int64  `json:"offset"`
	Width      int64  `json:"width"`
	Transposed bool   `json:"transposed,omitempty"` // W is stored as (outputs, inputs)

	From *graph.Value `json:"-"` // x
	// Rows is x W, all its columns; nil where the graph adds b in the same node.
	Rows *graph.Value `json:"-"`
	// Factor and BiasFactor are what x W and b are multiplied by on their way to
	// the value that was asked about.
	Factor     float64 `json:"-"`
	BiasFactor float64 `json:"-"`
}

// Past names the caches among the model's inputs; empty where there is none.
type Past struct {
	Key          string `json:"key,omitempty"`
	Value        string `json:"value,omitempty"`
	PresentKey   string `json:"present_key,omitempty"`
	PresentValue string `json:"present_value,omitempty"`
}

// Wiring is what a rewrite needs: the values a block reads and makes. Layouts
// are "bshd", "bhsd" or "bhds", or those of [view.layout] for one head; a value of rank 3 in "bshd" has heads and size
// in one dimension. Operators take no query or value in columns ([Columns]) and give no such result: they are turned.
type Wiring struct {
	Graph *graph.Graph

	Query, Key, Value                   *graph.Value
	QueryLayout, KeyLayout, ValueLayout string
	Packed                              bool // Query holds q|k|v; Key and Value are nil
	PastKey, PastValue                  *graph.Value
	PresentKey, PresentValue            *graph.Value
	Biases                              []Bias  // what is added to scores: their sum
	Floor                               float64 // their sum is raised to it where it is below; 0: it is not
	// they are of float16, which has no digits for their sum: it is made in float32
	Wide bool
	// (H, 1, 1): each head's query is multiplied by its own; or nil
	HeadScale *graph.Value
	// a constant of H numbers: of each head a score that its softmax counts, and that has no value; or nil
	Sinks                                      *graph.Value
	BoolMask                                   *graph.Value // boolean, true where a key is seen
	BoolMaskInverted                           bool         // BoolMask is true where a key is hidden
	MaskAfterBias                              bool
	Scale                                      float64 // of these values: factors further up are in them already
	Window                                     int64   // apply the window inside the operator
	Fill                                       float64
	ZeroRows                                   bool // rows without visible keys are zeros
	ClearNaN                                   bool // probabilities that are NaN are replaced by 0
	Lengths                                    *graph.Value
	Output                                     *graph.Value
	OutputLayout                               string
	OutputRank                                 int
	Filled                                     int64        // zeros after a value's features in each head of Output
	Scores                                     *graph.Value // probabilities that something else reads, or nil
	ScoresMode                                 int
	Causal                                     bool // keys after their query are hidden by their indices; see Compares
	Anchor                                     *graph.Node
	Batch, Queries, NewKeys, PastKeys, AllKeys graph.Dim

	// Grown: Key holds those of an input before those of new tokens, and the block has no past, for its values.
	Grown bool

	// Input is what key and value are projected from, in self attention query too:
	// rows of the model's width, in any shape before the last axis. It is nil when
	// that is not one value, or not known.
	Input *graph.Value
	// RawQuery and RawKey are query and key before their rotary embedding, and
	// Rotary is that: nil where there is none, and RawQuery and RawKey are query
	// and key then, also of a packed block. Query and key that are not turned in
	// the same way leave all three nil.
	RawQuery, RawKey             *graph.Value
	RawQueryLayout, RawKeyLayout string
	Rotary                       *Rotary
	// LeavingKey and LeavingValue are the graph's outputs that hand out key and value of
	// a block without a past for a later step.
	LeavingKey, LeavingValue *graph.Value
}

// Columns reports a layout whose last axis is that of positions: a head's features are columns.
func Columns(layout string) bool { return layout == "bhds" || layout == "bd1s" }

// Turns reports values or a result in columns.
func (w *Wiring) Turns() bool { return Columns(w.ValueLayout) || Columns(w.OutputLayout) }

// Bias is a term of what is added to scores after their scale: Factor times a value that
// is broadcastable to (B, H, S, T), or, Joined, to (B*H, S, T), or, over Windows, has the shape
// (1, W, 1 or H, S, T) where the batch is images of W windows each. With Hides the lowest number of its type hides
// a key as minus infinity does.
type Bias struct {
	Value   *graph.Value
	Factor  float64
	Joined  bool
	Windows bool
	Hides   bool
	Later   bool // for scores (B, H, S, T): the lowest number is added where a key comes after its query
}

// Hiding are the values that hide keys, or are added to scores.
func (w *Wiring) Hiding() (list []*graph.Value) {
	for _, b := range w.Biases {
		list = append(list, b.Value)
	}
	if w.BoolMask != nil {
		list = append(list, w.BoolMask)
	}
	return list
}

// Compares says that an operator hides the keys after a query by their indices; no term of Biases does.
func (w *Wiring) Compares() bool {
	return w.Causal && !slices.ContainsFunc(w.Biases, func(b Bias) bool { return b.Later })
}

// bias is a term that is a value as it stands.
func bias(v *graph.Value) []Bias {
	if v == nil {
		return nil
	}
	return []Bias{{Value: v, Factor: 1}}
}

// Facts are the block's facts under their JSON names, for constraints.
func (b *Block) Facts() map[string]any {
	a := b.Attention
	f := map[string]any{
		"type": a.Type, "dtype": a.DType, "heads": a.Heads, "kv_heads": a.KVHeads,
		"head_size": a.HeadSize, "value_size": a.ValueSize, "scale": a.Scale, "softcap": a.Softcap,
		"causal": a.Causal, "window": a.Window, "positions": a.Positions, "past_layout": a.PastLayout, "form": a.Form,
		"past": a.Past != nil, "scores_read": a.Scores, "sinks": a.Sinks, "mask": []string{},
	}
	if a.Mask != nil {
		f["mask"] = a.Mask.Kinds
	}
	return f
}

// rounded is what static quantisation does to scores and probabilities.
const rounded = "rounded to a few bits, as no operator rounds them"

// Find recognises the blocks of a main graph and its subgraphs. Graph.Bounded stops it.
func Find(g *graph.Graph, shapes *graph.Shapes) *Report {
	r := &Report{}
	f := &finder{main: g, shapes: shapes, known: map[question]depths{}, read: map[*graph.Value][]graph.Use{},
		origins: map[*graph.Value]origin{}, leaves: map[leave]*graph.Value{}, tables: map[tableQuestion]bool{}}
	f.guises.written = map[arrangement]*graph.Value{}
	f.disguise(g)
	f.learned = f.learnedPositions(g)
	g.Walk(func(n *graph.Node) {
		var b *Block
		var err error
		f.inside = n.Graph
		if why := f.calls(n); why != "" {
			r.Unrecognised = append(r.Unrecognised, Unrecognised{Node: n.Path(), Op: n.Op(), Reason: why})
			return
		}
		if n.Op() == "com.microsoft.QLinearSoftmax" {
			r.Unrecognised = append(r.Unrecognised,
				Unrecognised{Node: n.Path(), Op: n.Op(), Reason: "its scores and probabilities are " + rounded})
			return
		}
		softmax := n.Is("Softmax")
		if !softmax && !IsAttentionOperator(n) {
			return
		}
		if why := n.Unread(); why != "" {
			err = errors.New(why)
		} else if softmax {
			b, err = f.softmax(n)
		} else {
			b, err = f.operator(n)
		}
		if err != nil {
			r.Unrecognised = append(r.Unrecognised,
				Unrecognised{Node: n.Path(), Op: n.Op(), Reason: err.Error(), Classes: f.overClasses(n)})
			return
		}
		r.Blocks = append(r.Blocks, b)
	})
	return r
}

type finder struct {
	main    *graph.Graph
	shapes  *graph.Shapes
	guises  guises
	learned bool // the model adds a table of positions to its embeddings
	// inside is the graph in whose symbols lengths are told: that of the block, or of the
	// value whose guises are followed. Views lead out of it.
	inside *graph.Graph

	// What was found before, so that no walk is gone again for each of its ends.
	known   map[question]depths
	read    map[*graph.Value][]graph.Use // by first value
	origins map[*graph.Value]origin
	leaves  map[leave]*graph.Value
	tables  map[tableQuestion]bool
	hidden  map[string]string // what stands in functions of the model, by their names
}
