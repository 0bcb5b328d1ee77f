package engine

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
)

// hidden is the score, or the term of a score, from which on a key counts as
// hidden: exporters write the lowest float32, -1e9 or -1e4.
const hidden = -9e3

// biasTables are the biases made so far, by what they were made of: layers share one.
type biasTables map[string]*biasTable

// biasTable is what a mask comes to where each query sees what is not after it.
type biasTable struct {
	value  *graph.Value // (heads, distances), added to scores, or (rows, heads, distances); nil for nothing
	window int64        // how many positions a query sees, itself included; 0: all
	prefix bool         // tokens of a prompt see all of it
}

// maskKey tells what a block adds to scores and hides of them.
func maskKey(w *blocks.Wiring) string {
	key := fmt.Sprintf("%p %t", w.BoolMask, w.BoolMaskInverted)
	for _, b := range w.Biases {
		key += fmt.Sprintf(" %p %g", b.Value, b.Factor)
	}
	return key
}

// bias checks that a block of self attention hides just what comes after a
// query (and what lies before its window), and gives what is added to scores as
// a table (heads, distances), or nil when nothing is.
func (s *builder) bias(b *blocks.Block) (*graph.Value, error) {
	w := b.Wiring
	if len(w.Biases) == 0 && w.BoolMask == nil {
		if s.sees(b) && !s.Steps {
			return nil, errors.New("a query sees keys that come after it")
		}
		return nil, s.agree(false)
	}
	key := maskKey(w)
	if table, ok := s.biases[key]; ok {
		return table.value, nil
	}
	list, own, table, err := s.biasTable(b)
	if err != nil {
		return nil, err
	}
	if err := s.agree(table.prefix); err != nil {
		return nil, err
	}
	if table.prefix && (list != nil || own != nil || s.windowBeside(b, table) > 0) {
		return nil, errors.New("tokens of a prompt see all of it, and scores depend on distances besides, of which an " +
			"engine knows those to earlier keys alone")
	}
	switch q := s.queryBiasOfBlock(b); {
	case q != nil && list != nil:
		return nil, errors.New("its queries add numbers of their own to scores, and a bias is added besides")
	case q != nil:
		if table.value, err = s.ownBias(q, own, b.Attention.Heads); err != nil {
			return nil, err
		}
	case list != nil:
		distances := len(list) / int(b.Attention.Heads)
		table.value = s.Graph.AddInitializer(
			graph.FloatTensor("graft_position_bias", []int64{b.Attention.Heads, int64(distances)}, list...))
	}
	s.biases[key] = table
	return table.value, nil
}

// sees reports a block of self attention in which a query may see keys that come after it. One query at the end of
// all keys has none after it.
func (d *Decoder) sees(b *blocks.Block) bool {
	w := b.Wiring
	return b.Attention.Type != "cross" && len(w.Biases) == 0 && w.BoolMask == nil && !w.Causal && !w.Queries.Is(1)
}

// Sees reports that queries of some block may see keys that come after them, unless each is alone.
func (d *Decoder) Sees() bool { return slices.ContainsFunc(d.Report.Blocks, d.sees) }

// HidesQuestions are what must be known of a decoder without a past before Hides.
func (d *Decoder) HidesQuestions() []Question {
	var list questions
	for _, b := range d.Report.Blocks {
		if names := d.maskNames(b); names != nil && b.Attention.Type != "cross" {
			list.add(Question{names, d.hidesLengths()})
		}
	}
	return list
}

func (d *Decoder) hidesLengths() Lengths {
	if d.Single() {
		return Lengths{New: 1, Encoder: 1}
	}
	return Lengths{New: min(cmp.Or(d.length(), 70), d.Positions), Encoder: 1}
}

// length is how many tokens a graph is for; 0 for any.
func (d *Decoder) length() int64 {
	r := roles.Find(d.Graph, d.Shapes, d.Report)
	for _, v := range d.Graph.Inputs {
		if n, one := d.Shapes.Of(v).Dim(-1).Const(); one && r.Of(v) == roles.Tokens {
			return n
		}
	}
	return 0
}

// Single reports a decoder whose graph takes one token after its past, as exporters of a step alone write it: what
// several tokens would see, or would be told of their positions, it does not say.
func (d *Decoder) Single() bool {
	one := func(b *blocks.Block) bool { return b.Attention.Type == "cross" || b.Wiring.Queries.Is(1) }
	return d.SelfLayers() > 0 && !slices.ContainsFunc(d.Report.Blocks, func(b *blocks.Block) bool { return !one(b) })
}

// SeesLater reports why tokens of a prompt, which a decoder without a past reads at once, are not the same one at a
// time; nil where each sees nothing that comes after it. HidesQuestions must be answered.
func (d *Decoder) SeesLater() error {
	s, at := &builder{Decoder: d}, d.hidesLengths()
	for _, b := range d.Report.Blocks {
		later := d.sees(b)
		if d.maskNames(b) != nil && b.Attention.Type != "cross" && !b.Wiring.Causal {
			m, err := s.seen(b, at)
			if err != nil {
				return fmt.Errorf("%s: %w", b.Node, err)
			}
			for i := range at.New {
				for j := i + 1; j < at.New; j++ {
					_, seen := m.at(0, i, j)
					later = later || seen
				}
			}
		}
		if later {
			return fmt.Errorf("%s: a token of a prompt sees those after it, and the decoder takes one token at a time", b.Node)
		}
	}
	return nil
}

// Hides reports that every block of self attention of a decoder without a past hides just what comes after each query:
// then a decoder with a past that hides nothing is meant for one query at a time, and what that sees is the same.
func (d *Decoder) Hides(layers int) bool {
	s, at := &builder{Decoder: d}, d.hidesLengths()
	for _, b := range d.Report.Blocks {
		w := b.Wiring
		if b.Attention.Type == "cross" {
			continue
		}
		layers--
		if max(w.Window, b.Attention.Window) > 0 {
			return false
		}
		if d.maskNames(b) == nil {
			if !w.Causal {
				return false
			}
			continue
		}
		m, err := s.seen(b, at)
		if err != nil {
			return false
		}
		for h := range b.Attention.Heads {
			for i := range at.New {
				for j := range at.New {
					x, seen := m.at(h, i, j)
					if seen && w.Causal && j > i { // the operator hides it
						continue
					}
					if seen != (j <= i) || seen && x != 0 {
						return false
					}
				}
			}
		}
	}
	return layers == 0 && len(d.Report.Unrecognised) == 0
}

// SelfLayers counts the blocks of self attention.
func (d *Decoder) SelfLayers() (n int) {
	for _, b := range d.Report.Blocks {
		if b.Attention.Type != "cross" {
			n++
		}
	}
	return n
}

// windowOf is how many positions a query of a block of self attention sees, 0 for all: what
// its mask shows, which bias has evaluated, and what its operator applies beside it.
func (s *builder) windowOf(b *blocks.Block) int64 {
	return s.windowBeside(b, s.biases[maskKey(b.Wiring)])
}

func (s *builder) windowBeside(b *blocks.Block, table *biasTable) int64 {
	switch own := b.Wiring.Window; {
	case table == nil:
		return max(b.Attention.Window, own)
	case own > 0 && table.window > 0:
		return min(own, table.window)
	default:
		return max(own, table.window)
	}
}

// biasTable evaluates a block's mask and bias: (heads, distances), or nil when
// the bias is zero wherever a key is seen; the buckets of distances of biases that queries make for themselves, nil
// for none; and what is seen.
func (s *builder) biasTable(b *blocks.Block) (_ []float32, own []int64, _ *biasTable, _ error) {
	heads, longest := b.Attention.Heads, s.Positions
	ats := s.maskLengths(b)
	last, err := s.seen(b, ats[0])
	if err != nil {
		return nil, nil, nil, err
	}
	numbers := &buckets{}
	if q := s.queryBiasOfBlock(b); q != nil {
		numbers.count = q.count
	}
	window := int64(0)
	for d := range longest {
		if _, seen := last.at(0, 0, longest-1-d); !seen {
			window = d
			break
		}
	}
	if _, seen := last.at(0, 0, longest-1); !seen {
		return nil, nil, nil, errors.New("a query does not see its own key")
	}
	table := make([]float32, heads*longest)
	relative := false
	for h := range heads {
		for d := range longest {
			x, seen := last.at(h, 0, longest-1-d)
			if seen != (window == 0 || d < window) {
				return nil, nil, nil, fmt.Errorf(
					"its mask, seen from the last position, hides keys from distance %d on, and distance %d of head %d is seen=%t: "+
						"that is no window", window, d, h, seen)
			}
			if seen {
				table[h*longest+d] = x
				relative = relative || x != 0
				if err := numbers.read(last, h, 0, longest-1-d, d); err != nil {
					return nil, nil, nil, err
				}
			}
		}
	}
	// The same must hold for queries in the middle, or it is no function of the distance.
	found := &biasTable{window: window}
	for _, at := range ats[1:] {
		few, err := s.seen(b, at)
		if err != nil {
			return nil, nil, nil, err
		}
		prefix, err := s.prefix(b, few, at)
		if err != nil {
			return nil, nil, nil, err
		}
		found.prefix = found.prefix || prefix > 0
		for h := range heads {
			for i := range at.New {
				// What is added to all scores of a query alike does not count, but beside a sink.
				same := float32(0)
				if self, seen := few.at(h, i, at.Past+i); seen && !b.Attention.Sinks {
					same = self - table[h*longest]
				}
				for j := range at.Past + at.New {
					x, seen := few.at(h, i, j)
					d := at.Past + i - j
					switch {
					case d < 0 && b.Wiring.Causal: // the operator hides it
					case j < prefix && i < prefix && seen && x == 0: // of a prompt that sees all of itself
					case seen != (d >= 0 && (window == 0 || d < window)):
						return nil, nil, nil, fmt.Errorf("key %d is seen=%t by the query at position %d: that is no causal mask", j, seen,
							at.Past+i)
					case seen && d >= 0 && !near(x-same, table[h*longest+d]):
						return nil, nil, nil, fmt.Errorf(
							"its bias at distance %d is %g for one query and %g for another: it is no function of the distance",
							d, x-same, table[h*longest+d])
					case seen && d >= 0:
						if err := numbers.read(few, h, i, j, d); err != nil {
							return nil, nil, nil, err
						}
					}
				}
			}
		}
	}
	own = numbers.shortened()
	if !relative {
		return nil, own, found, nil
	}
	return shortened(table, heads, longest), own, found, nil
}

// agree notes whether tokens of a prompt see all of it in a layer: in all layers they do, or in none.
func (s *builder) agree(prefix bool) error {
	s.ordered, s.engine.Prefix = s.ordered || !prefix, s.engine.Prefix || prefix
	if s.ordered && s.engine.Prefix {
		return errors.New("tokens of a prompt see all of it in some layers and what is before them in others")
	}
	return nil
}

// takesPrefix reports a decoder whose prompts may see all of themselves: one alone, without an encoder.
func (d *Decoder) takesPrefix() bool {
	return d.SelfLayers() == len(d.Report.Blocks) && d.Positions > 8 && !d.Single()
}

// prefixLengths are those at which tokens after a past must see what is before them alone.
func (d *Decoder) prefixLengths() Lengths { return Lengths{Past: 2, New: 5, Encoder: 1} }

// prefix is the number of tokens of a prompt that see each other whatever their order, while tokens after a past do
// not; 0 where each sees those before it alone. The placeholder after it is none of them.
func (s *builder) prefix(b *blocks.Block, m *mask, at Lengths) (int64, error) {
	n := at.New
	if s.Placeholder {
		n--
	}
	if at.Past > 0 || n < 2 || b.Wiring.Causal || !s.takesPrefix() {
		return 0, nil
	}
	if _, later := m.at(0, 0, n-1); !later {
		return 0, nil
	}
	at = s.prefixLengths()
	m, err := s.seen(b, at)
	if err != nil {
		return 0, err
	}
	for h := range b.Attention.Heads {
		for i := range at.New {
			for j := range at.Past + at.New {
				if _, seen := m.at(h, i, j); seen != (j <= at.Past+i) {
					return 0, nil
				}
			}
		}
	}
	return n, nil
}

// near allows for the rounding of a difference.
func near(a, b float32) bool {
	d := a - b
	return d == 0 || max(d, -d) <= 1e-6*max(a, -a, b, -b)
}

// shortened drops the distances at the end that have the bias of the one before
// them: the operator takes the last for all that are farther.
func shortened(table []float32, heads, longest int64) []float32 {
	length := longest
	for ; length > 1; length-- {
		for h := range heads {
			if table[h*longest+length-1] != table[h*longest+length-2] {
				goto found
			}
		}
	}
found:
	short := make([]float32, 0, heads*length)
	for h := range heads {
		short = append(short, table[h*longest:h*longest+length]...)
	}
	return short
}

// nothingHidden checks that a block of cross attention sees every key of its row.
func (s *builder) nothingHidden(b *blocks.Block) error {
	if s.maskNames(b) == nil {
		return nil
	}
	at := s.maskLengths(b)[0]
	m, err := s.seen(b, at)
	if err != nil {
		return err
	}
	for h := range b.Attention.Heads {
		for j := range at.Encoder {
			if x, seen := m.at(h, 0, j); !seen || x != 0 {
				return errors.New("something but the encoder's mask is added to its scores")
			}
		}
	}
	return nil
}

// mask is the evaluated terms of a bias, and visibility, of a block.
type mask struct {
	terms    []term
	own      *Evaluated // buckets of biases that queries make for themselves
	boolean  *Evaluated
	inverted bool
}

type term struct {
	*Evaluated
	factor float32
}

// seen evaluates a block's bias and visibility.
func (s *builder) seen(b *blocks.Block, at Lengths) (*mask, error) {
	w := b.Wiring
	m := &mask{inverted: w.BoolMaskInverted}
	values, err := s.Answers.of(Question{s.maskNames(b), at})
	if err != nil {
		return nil, fmt.Errorf("its mask cannot be evaluated: %w", err)
	}
	for i, b := range w.Biases {
		if b.Windows {
			return nil, errors.New("its mask lies over windows of images")
		}
		if s.queryBiasOf(b) != nil {
			if m.own != nil {
				return nil, errors.New("its queries add two biases of their own to scores")
			}
			m.own = &values[i]
			continue
		}
		m.terms = append(m.terms, term{&values[i], float32(b.Factor)})
	}
	if w.BoolMask != nil {
		m.boolean = &values[len(w.Biases)]
	}
	for _, e := range values {
		if err := e.covers(b.Attention.Heads, at.New, at.keys(b.Attention.Type)); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// keys is the number of keys that attention of a type sees.
func (at Lengths) keys(kind string) int64 {
	if kind == "cross" {
		return at.Encoder
	}
	return at.Past + at.New
}

// covers reports a mask that is shorter than what it is added to: a table that ends
// before the longest sequence.
func (e *Evaluated) covers(heads, queries, keys int64) error {
	for i, need := range []int64{keys, queries, heads} {
		if at := len(e.Shape) - 1 - i; at >= 0 && e.Shape[at] != 1 && e.Shape[at] < need {
			return fmt.Errorf("its mask has the shape %v where %d heads, %d queries and %d keys meet; allow no more "+
				"positions than the model has", e.Shape, heads, queries, keys)
		}
	}
	return nil
}

// at is the bias of head h, query i and key j, and whether the key is seen.
func (m *mask) at(h, i, j int64) (bias float32, seen bool) {
	seen = true
	if m.boolean != nil {
		seen = (m.boolean.at(h, i, j) != 0) != m.inverted
	}
	for _, t := range m.terms {
		x := t.factor * t.at(h, i, j)
		bias += x
		seen = seen && x > hidden
	}
	return bias, seen
}

// at reads (.., h, i, j) of a tensor that is broadcast over (1, H, S, T).
func (e *Evaluated) at(h, i, j int64) float32 {
	index, rank := int64(0), len(e.Shape)
	for axis, at := range []int64{0, h, i, j} {
		k := rank - 4 + axis
		if k < 0 {
			continue
		}
		if e.Shape[k] == 1 {
			at = 0
		}
		index = index*e.Shape[k] + at
	}
	return e.Data[index]
}
