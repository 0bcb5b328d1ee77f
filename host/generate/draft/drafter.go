package draft

import (
	"slices"

	"github.com/opgraft/graft/host/generate/search"
)

// Longest is the maximum number of tokens of a row that a Drafter drafts where no other is set.
const Longest = 16

// Drafter drafts the next tokens of one request. It learns from every guess whether it would have been right, also
// from those that it did not draft, so that it stops where a text copies nothing, at no cost, and goes on where one
// begins to. One goroutine at a time.
//
// With one row, what was generated is looked up too. With several (beams), each row's end is looked up in the texts
// before; a row of which nothing is found is guessed to go on as the first of which something is.
type Drafter struct {
	index   *Index
	call    *Odds
	own     Odds
	longest int
	ends    [][]int32 // of several rows; nil: the one row is the index's text
	guesses [][]int32 // a row: one token longer than a draft, since the token that is chosen after it is compared too
	drafted [][]int32
	agreed  int // tokens before the guesses, in the row of the fewest
}

// New drafts for a request of a call. longest is the maximum length of a draft; 0 is Longest. texts are those of
// NewIndex: the encoder's input, where there are tokens of one, and the decoder's prompt.
func New(call *Odds, beams bool, longest int, texts ...[]int32) *Drafter {
	if longest == 0 {
		longest = Longest
	}
	d := &Drafter{index: NewIndex(texts...), call: call, longest: longest}
	if beams {
		d.ends = [][]int32{end(texts[len(texts)-1])}
	}
	return d
}

// end is a copy of what is looked up of a text.
func end(text []int32) []int32 { return slices.Clone(text[max(0, len(text)-sizes[0]):]) }

// Next drafts up to n tokens of each row, equally many. A position is drafted where the chance that it and all before
// it are chosen is above price: what its rows add to the time of a step, over what a step of their own would take.
// The slices are valid until the next call.
func (d *Drafter) Next(n int, price float64) [][]int32 {
	n = min(n, d.longest)
	length := d.guess(n + 1)
	drafted, chance := 0, 1.0
	for ; drafted < min(n, length); drafted++ {
		c := class(d.agreed + drafted)
		if chance *= d.own.chance(c, d.call.chance(c, assumed[c])); chance <= price {
			break
		}
	}
	d.drafted = d.drafted[:0]
	for _, g := range d.guesses {
		d.drafted = append(d.drafted, g[:drafted])
	}
	return d.drafted
}

// guess makes a guess for each row, as long as the shortest, at most n, and gives that length.
func (d *Drafter) guess(n int) int {
	rows := max(1, len(d.ends))
	for len(d.guesses) < rows {
		d.guesses = append(d.guesses, nil)
	}
	d.guesses = d.guesses[:rows]
	if d.ends == nil {
		d.guesses[0], d.agreed = d.index.Next(d.guesses[0][:0], n)
		return len(d.guesses[0])
	}
	d.agreed = sizes[0]
	some := -1
	for i, text := range d.ends {
		var agreed int
		d.guesses[i], agreed = d.index.After(text, d.guesses[i][:0], n)
		d.agreed = min(d.agreed, agreed)
		if some < 0 && agreed > 0 {
			some = i
		}
	}
	if some < 0 {
		return 0
	}
	length := n
	for i, g := range d.guesses {
		if len(g) == 0 {
			d.guesses[i] = append(g, d.guesses[some]...)
		}
		length = min(length, len(d.guesses[i]))
	}
	for i, g := range d.guesses {
		d.guesses[i] = g[:length]
	}
	return length
}

// Chosen says what was chosen since Next, or since the prompt: the positions of the draft that were accepted, and the
// moves after them.
func (d *Drafter) Chosen(accepted int, moves []search.Move) {
	for i := range accepted {
		d.note(i, true)
	}
	if len(d.guesses) > 0 && accepted < len(d.guesses[0]) {
		d.note(accepted, same(moves, d.guesses, accepted))
	}
	if d.ends == nil {
		if len(d.guesses) > 0 {
			d.index.Add(d.guesses[0][:accepted]...)
		}
		d.index.Add(moves[0].Token)
	} else {
		ends := make([][]int32, len(moves))
		for i, m := range moves {
			text := slices.Clone(d.ends[m.Parent])
			if m.Parent < len(d.guesses) {
				text = append(text, d.guesses[m.Parent][:accepted]...)
			}
			ends[i] = end(append(text, m.Token))
		}
		d.ends = ends
	}
	for i := range d.guesses {
		d.guesses[i] = d.guesses[i][:0]
	}
}

// note counts whether a guess was right at a position.
func (d *Drafter) note(position int, right bool) {
	c := class(d.agreed + position)
	d.own.note(c, right)
	d.call.note(c, right)
}
