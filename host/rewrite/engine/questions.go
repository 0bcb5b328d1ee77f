package engine

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/plan"
)

// Lengths are what an exported model is evaluated at: one row of New tokens after
// Past, over Encoder positions, with nothing hidden by a mask that is given.
type Lengths struct {
	Past, New, Encoder int64
}

// Question asks for values of a model as exported, by name, at some lengths.
type Question struct {
	Names []string
	At    Lengths
}

// Evaluated is a value's content at some lengths, booleans and integers as
// numbers.
type Evaluated struct {
	Shape []int64
	Data  []float32
}

// Answers are values that were evaluated, and why others could not be.
type Answers map[string]answer

type answer struct {
	values []Evaluated
	err    error
}

func (q Question) key() string { return fmt.Sprint(q.At, q.Names) }

// Has reports that a question was answered.
func (a Answers) Has(q Question) bool { _, ok := a[q.key()]; return ok }

// Add takes the answer to a question: values in the order of its names, or an error.
func (a Answers) Add(q Question, values []Evaluated, err error) {
	if err == nil && len(values) != len(q.Names) {
		err = fmt.Errorf("%d values were evaluated for %d names", len(values), len(q.Names))
	}
	a[q.key()] = answer{values, err}
}

func (a Answers) of(q Question) ([]Evaluated, error) {
	x, ok := a[q.key()]
	if !ok {
		return nil, fmt.Errorf("%v was not evaluated at %+v", q.Names, q.At)
	}
	return x.values, x.err
}

// questions is a list without repetitions.
type questions []Question

func (l *questions) add(q Question) {
	if !slices.ContainsFunc(*l, func(x Question) bool { return x.At == q.At && slices.Equal(x.Names, q.Names) }) {
		*l = append(*l, q)
	}
}

// Questions are what must be known of the exported model before its layers are checked
// and attended: what masks hide, and the angles of rotary embeddings where self
// attention is to store keys.
func (d *Decoder) Questions(self plan.Strategy) []Question {
	var list questions
	for _, b := range d.Report.Blocks {
		if b.Wiring == nil || b.Attention == nil {
			continue
		}
		if names := d.maskNames(b); names != nil {
			for _, at := range d.maskLengths(b) {
				list.add(Question{names, at})
			}
			if d.takesPrefix() {
				list.add(Question{names, d.prefixLengths()})
			}
		}
		if b.Attention.Type != "cross" && self == plan.Keys {
			if r := b.Wiring.Rotary; r != nil && r.Rows == nil {
				list.add(d.angleQuestion(r.Cos.Name))
				list.add(d.angleQuestion(r.Sin.Name))
			}
		}
	}
	return list
}

// maskNames are the values that say what a block's queries see, nil for none.
func (d *Decoder) maskNames(b *blocks.Block) (names []string) {
	for _, v := range d.hiding(b) {
		names = append(names, v.Name)
	}
	return names
}

// maskLengths are the lengths at which a block's mask is looked at: of self attention
// that of the last position, then others that must agree with it.
func (d *Decoder) maskLengths(b *blocks.Block) []Lengths {
	const keys = 5
	if b.Attention.Type == "cross" {
		return []Lengths{{Past: 2, New: 1, Encoder: keys}}
	}
	longest := d.Positions
	if d.Single() {
		list := []Lengths{{Past: longest - 1, New: 1, Encoder: 1}}
		for _, past := range []int64{0, 1, 2, 3, 8, longest / 3, longest / 2} {
			list = append(list, Lengths{Past: min(past, longest-1), New: 1, Encoder: 1})
		}
		return list
	}
	return []Lengths{{Past: longest - 1, New: 1, Encoder: 1}, {Past: 0, New: min(9, longest), Encoder: 1},
		{Past: longest / 3, New: 1, Encoder: 1}}
}

func (d *Decoder) angleQuestion(name string) Question {
	return Question{[]string{name}, Lengths{Past: 0, New: d.Positions, Encoder: 1}}
}
