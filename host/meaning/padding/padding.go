// Package padding finds what a graph computes for tokens that its attention mask hides, and whether anything of that
// can be seen. Where nothing can, the tokens need not be computed: rows that the mask shows are gathered from the
// batch, what works a row at a time runs on them alone, attention runs within each sequence, and what leaves is put
// back.
//
// Everything is read off the graph: which input hides keys and what it adds to their scores, which operators keep rows
// apart, and what is read of the result. Names decide nothing.
package padding

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
)

// Facts say how a graph can run without padding.
type Facts struct {
	// Mask is the input (B, S), or with axes of one between them, that is 0 where a token is hidden and 1 where it is
	// visible or, with Added, 0 where it is visible and a number below all scores where it is hidden. Or it is a value
	// that the graph makes, (B, S), of 0 and 1.
	Mask  *graph.Value
	Added bool
	// Tokens is the input (B, S) that such a value is made from, in another way than token by token, or nil: one that is
	// counted, say. A program takes a token for visible that is so in it, and none is hidden before it is so in both.
	Tokens *graph.Value
	// From names the inputs that say which tokens are hidden: that of Tokens or Mask, or those that Mask is made from.
	From   string
	Blocks []*Block // attention that runs within sequences, in the order of the graph

	// Places are the values that hold a row for each token of a batch, and are made of visible tokens alone.
	Places map[*graph.Value]Place
	// Early are the nodes before the first attention. What else reads their results is given those of all rows.
	Early []*graph.Node
	// Late are the nodes after it.
	Late []*graph.Node
	// Given are inputs of these nodes and blocks that are made elsewhere, of all rows, or of positions.
	Given map[graph.Use]Given
	// Leaving are values of Late and of attention that something else reads.
	Leaving []*graph.Value
	// Ends are nodes that read one position of each sequence of such a value, the first or the last.
	Ends map[*graph.Node]End
	// Shapes are nodes that read no more than the lengths of values of which rows are left.
	Shapes []*graph.Node

	// Blind says that a hidden token may see no visible key within a window of its attention, and then sees others
	// beyond it: all keys of its sequence, hidden ones included, must be there. Mixed says that it does not see all of
	// them alike either.
	Blind, Mixed bool
	// Apart says that attention which stays as the model has it reads rows that are put back in their places, zeros
	// standing for hidden ones, and that rows are taken of its result again: those of visible tokens are the model's.
	Apart bool
	// First and Last say that what is read of the first or last position matters, hidden or not.
	First, Last bool
	// Outputs are those of the model that hold hidden rows. Without any, nothing of hidden rows can be seen.
	Outputs []string
	// Rounds says that one scale is taken over all rows, hidden ones included: without them, answers are rounded
	// otherwise.
	Rounds bool
}

// Exact says that no output depends on what is computed for hidden tokens.
func (f *Facts) Exact() bool { return len(f.Outputs) == 0 && !f.Rounds }

// End is a node that reads the first or last position of each sequence.
type End struct {
	Last bool
	Axis bool // its result has an axis of one position
}

// Place says which axes of a value count the sequences of a batch and their positions. A value that has both in one
// axis has no Batch (-1).
type Place struct{ Batch, Position int }

// Flat says that sequences and positions are in one axis.
func (p Place) Flat() bool { return p.Batch < 0 }

// Given says how rows are taken of a value that all rows are there of. An axis is -1 where the value has none: without
// Position it is the same for all positions of a sequence, without Batch for all sequences.
type Given struct {
	Place
	Flat bool // both are in the axis Position
}

// Block is attention in which padding hides keys, and positions at most do besides.
type Block struct {
	*blocks.Block
	Hides
	Output Place
}

// blind reports a window beyond which scores are not far below those of hidden keys within it.
func (b *Block) blind() bool {
	below := float32(b.Beyond) < float32(b.Fill) && b.Beyond <= b.Fill+lowest
	return b.windowed() && (b.Given || b.Hides.Mixed || !below && !math.IsInf(b.Beyond, -1))
}

// mixed reports that, of a query that sees no visible key within its window, not all keys have the same score.
func (b *Block) mixed() bool {
	if !b.blind() {
		return false
	}
	return b.Given || b.Hides.Mixed || b.Bias != nil || b.Wiring.Compares() || b.Wiring.Window > 0 || b.Beyond != b.Fill ||
		b.Fill > swallows
}

// AllAlike reports that a query which sees no visible key within its window sees all keys alike: their scores are
// Beyond.
func (b *Block) AllAlike() bool { return b.blind() && !b.mixed() }

// swallows is the number from which on down whatever is added to it is rounded away.
const swallows = -1e30

// Hides says what a mask does to the scores of an attention.
type Hides struct {
	// Fill is what hidden keys' scores become, or, with Adds, what is added to them.
	Fill float64
	Adds bool
	// Given says that the numbers are the caller's, whatever these are.
	Given bool
	// Left and Right bound the keys that a query sees before and after itself; -1: they do not.
	Left, Right int64
	// Beyond is what scores are there, or what is added to them; Mixed says that it is another number for hidden keys.
	Beyond float64
	Mixed  bool
	// Bias is added to scores, (1, H or 1, S, S); nil for none.
	Bias *graph.Value
}

func (h *Hides) windowed() bool { return h.Left >= 0 || h.Right >= 0 }

// Find returns how a graph can run without padding; nil with the reason where it cannot, "" for a graph without a mask.
func Find(g *graph.Graph, shapes *graph.Shapes, report *blocks.Report) (f *Facts, why string) {
	masks := newMasks(g, shapes)
	var root, tokens *graph.Value
	var sources []string // inputs that root is made from
	var added bool
	var list []*Block
	var other *graph.Value // the mask of a block that stays as it is
	for _, b := range report.Blocks {
		from, h, reason := masks.of(b)
		if reason != "" {
			if why == "" {
				why = fmt.Sprintf("%s: %s", b.Node, reason)
			}
			if other == nil && b.Wiring.Graph == g && b.Obstacle == "" {
				other = masks.source(b)
			}
			continue
		}
		if from == nil {
			continue
		}
		if root == nil {
			root, added, tokens, sources = from, h.Given, masks.given(b, from), b.Attention.Mask.Sources
		}
		if from == root && h.Given == added {
			list = append(list, &Block{Block: b, Hides: h})
		}
	}
	if root == nil {
		root = other
	}
	if root == nil {
		root = masks.weighed()
	}
	if root == nil {
		return nil, why
	}
	s := shapes.Of(root)
	batch, positions := s.Dims[0], s.Dims[s.Rank-1]
	for _, d := range []graph.Dim{batch, positions} {
		if _, fixed := d.Const(); fixed || !d.Known() {
			return nil, "the lengths of its mask are fixed"
		}
	}
	if batch.Equal(positions) {
		return nil, "the graph does not tell the lengths of its mask apart"
	}
	masks.follow(root, added)
	first := why
	if len(list) > 0 {
		first = ""
	}
	for range most {
		f, not, failed := find(g, masks, tokens, batch, positions, list)
		if f != nil {
			switch {
			case tokens != nil:
				f.From = tokens.Name
			case root.IsInput:
				f.From = root.Name
			default:
				f.From = strings.Join(sources, ", ")
			}
			return f, ""
		}
		if first == "" {
			first = not
		}
		if failed == nil {
			break
		}
		// they stay as they are
		list = slices.DeleteFunc(slices.Clone(list), func(b *Block) bool { return slices.Contains(failed, b) })
	}
	return nil, first
}

// most is how often blocks are left because others were.
const most = 3

// find finds how a graph runs when these blocks attend within sequences. failed are those that cannot.
func find(g *graph.Graph, masks *masks, tokens *graph.Value, batch, positions graph.Dim, list []*Block) (f *Facts,
	why string, failed []*Block) {
	blind, mixed := slices.ContainsFunc(list, (*Block).blind), slices.ContainsFunc(list, (*Block).mixed)
	r := &rows{main: g, shapes: masks.shapes, batch: batch, positions: positions, masks: masks,
		facts: &Facts{Mask: masks.root, Tokens: tokens, Added: masks.adds, Blocks: list, Blind: blind, Mixed: mixed,
			Places: map[*graph.Value]Place{}, Given: map[graph.Use]Given{}, Ends: map[*graph.Node]End{}},
		blocks: map[*graph.Value]*Block{}, inner: map[*graph.Node]bool{}, beyond: map[*graph.Value]bool{},
		through: map[*graph.Node]*passage{}, chosen: map[*graph.Node]bool{}, late: map[*graph.Value]bool{},
		scales: map[*graph.Value]bool{}}
	r.clears = masks
	if tokens != nil {
		r.clears = newMasks(g, masks.shapes)
		r.clears.follow(tokens, false)
	}
	switch why, failed = r.find(); {
	case why != "":
		return nil, why, failed
	case len(list)+len(r.facts.Late) == 0:
		return nil, "nothing works a row at a time after its attention", nil
	case r.facts.Mixed && (r.facts.First || r.facts.Last):
		return nil, "a token that is read may be hidden, and see no visible key within its window", nil
	}
	return r.facts, "", nil
}

// has reports that a length depends on one of some others.
func has(d graph.Dim, of ...graph.Dim) bool {
	for _, s := range d.Symbols() {
		if slices.ContainsFunc(of, func(o graph.Dim) bool { return slices.Contains(o.Symbols(), s) }) {
			return true
		}
	}
	return false
}
