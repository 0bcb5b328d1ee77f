package draft

import (
	"slices"

	"github.com/opgraft/graft/host/generate/search"
)

// confidences are the probabilities that a draft model gave to a token, above which its guesses are counted together.
var confidences = [classes - 1]float64{0.9, 0.6, 0.3}

// trusted is assumed of a guess of each class before any was compared, and of any guess.
var trusted = [classes]float64{0.95, 0.75, 0.5, 0.25}

const trustedAll = 0.7

// level is the class of a probability.
func level(confidence float64) int {
	for i, c := range confidences {
		if confidence >= c {
			return i
		}
	}
	return len(confidences)
}

// Trust counts how often guesses of a draft model were right, by the probability that it gave them, and all together.
type Trust struct {
	levels Odds
	all    Odds // of class 0
}

func (t *Trust) note(level int, right bool) {
	t.levels.note(level, right)
	t.all.note(0, right)
}

// fade lets what was counted count half as much.
func (t *Trust) fade() {
	for _, o := range []*Odds{&t.levels, &t.all} {
		for i := range o.tried {
			o.right[i], o.tried[i] = o.right[i]/2, o.tried[i]/2
		}
	}
}

// The first and the last of the numbers of steps that a request waits before it tries again a model whose drafts did
// not pay.
const (
	shortWait = 16
	longWait  = 256
)

// Model decides for one request how many tokens a draft model drafts: as many as make the most tokens in the time, as
// far as chances are known from the guesses before. One goroutine at a time.
//
// A round of a request takes a step of the model and, for each position, a step of the draft model and rows of the
// model's. A position pays where the chance that it and all before it are chosen, over its time, is above the tokens
// of the round so far over their time: chances fall from position to position, so that the first that does not pay is
// the end (Leviathan et al. 2023, section 3.5, with chances that differ).
type Model struct {
	call    *Trust
	own     Trust
	longest int
	most    int

	guesses [][]int32 // a row; one token longer than drafted where the last guess was too unlikely
	levels  []int     // a position of guesses
	drafted int

	tokens, seconds, chance float64 // of the round, for one row
	more                    float64 // the time of a position
	waited, wait            int
	trying                  bool // whether drafts pay again, and could if all were right
}

// NewModel is that of a request of a call. longest is the maximum length of a draft; 0 is Longest.
func NewModel(call *Trust, longest int) *Model {
	if longest == 0 {
		longest = Longest
	}
	return &Model{call: call, longest: longest, wait: shortWait}
}

// Begin begins a round of up to n positions in a step of the model that takes that long for each of its rows, and
// says whether the draft model should run. more is the time of a position, for each row: of a step of the draft model
// and of a row of the model's.
func (m *Model) Begin(n int, seconds, more float64) bool {
	m.most, m.drafted, m.levels = min(n, m.longest), 0, m.levels[:0]
	m.tokens, m.seconds, m.chance, m.more, m.trying = 1, seconds, 1, more, false
	for i := range m.guesses {
		m.guesses[i] = m.guesses[i][:0]
	}
	switch {
	case m.most == 0:
		return false
	case m.pays(m.any(), more):
		m.waited, m.wait = 0, shortWait
		return true
	case m.waited < m.wait || !m.pays(1, more/2): // times are rough
		m.waited++
		return false
	}
	m.waited, m.wait, m.most, m.trying = 0, min(2*m.wait, longWait), 1, m.pays(1, more)
	m.own.fade()
	return true
}

// any is the chance of a guess of which nothing is known.
func (m *Model) any() float64 { return m.own.all.chance(0, m.call.all.chance(0, trustedAll)) }

func (m *Model) pays(chance, more float64) bool {
	return m.chance*chance*m.seconds > m.tokens*more*(1+caution)
}

// Guess takes the next guess, a token for each row with the probability that the draft model gave it, after a step of
// it that took a time for each row. It is drafted where it is worth its row in the model's step, which takes the last
// time. Guess says whether another is wanted.
func (m *Model) Guess(tokens []int32, confidence, took, row float64) bool {
	for len(m.guesses) < len(tokens) {
		m.guesses = append(m.guesses, nil)
	}
	m.guesses = m.guesses[:len(tokens)]
	for i, t := range tokens {
		m.guesses[i] = append(m.guesses[i], t)
	}
	l := level(confidence)
	m.levels = append(m.levels, l)
	m.seconds += took
	chance := m.own.levels.chance(l, m.call.levels.chance(l, trusted[l]))
	if !m.pays(chance, row) {
		return false
	}
	m.drafted++
	m.chance *= chance
	m.tokens, m.seconds = m.tokens+m.chance, m.seconds+row
	return m.drafted < m.most && m.pays(m.any(), m.more)
}

// Drafted are the tokens that are drafted, equally many of each row. They are valid until the next round.
func (m *Model) Drafted() [][]int32 {
	if m.drafted == 0 {
		return nil
	}
	list := make([][]int32, len(m.guesses))
	for i, g := range m.guesses {
		list[i] = g[:m.drafted]
	}
	return list
}

// Chosen ends the round and says what was chosen: the positions of the draft that were accepted, and the moves after
// them.
func (m *Model) Chosen(accepted int, moves []search.Move) {
	for i := range min(accepted, len(m.levels)) {
		m.note(i, true)
	}
	if accepted < len(m.levels) {
		m.note(accepted, same(moves, m.guesses, accepted))
	}
	m.levels, m.drafted = m.levels[:0], 0
}

func (m *Model) note(position int, right bool) {
	if m.trying && right {
		m.wait = 1
	}
	m.own.note(m.levels[position], right)
	m.call.note(m.levels[position], right)
}

// same says whether moves are those guessed at a position: each row goes on once, with its token.
func same(moves []search.Move, guesses [][]int32, position int) bool {
	if len(moves) != len(guesses) {
		return false
	}
	for i, m := range moves {
		if m.Token != guesses[m.Parent][position] ||
			slices.ContainsFunc(moves[:i], func(o search.Move) bool { return o.Parent == m.Parent }) {
			return false
		}
	}
	return true
}
