package search

import (
	"compress/gzip"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// hashModel is the model of testdata/make.py: logits are hashes of the last two tokens and of the
// encoder's input.
type hashModel struct {
	seed    uint64
	vocab   int
	encoder uint64
}

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

func newHashModel(seed uint64, vocab int, encoder []int32) hashModel {
	h := uint64(0)
	for _, t := range encoder {
		h = mix(h ^ uint64(t+1))
	}
	return hashModel{seed, vocab, h & 0xFFFFFF}
}

// logits appends the row of logits after a sequence.
func (m hashModel) logits(to []float32, tokens []int32) []float32 {
	last, before := uint64(tokens[len(tokens)-1]+1), uint64(0)
	if len(tokens) > 1 {
		before = uint64(tokens[len(tokens)-2] + 1)
	}
	key := mix(mix(mix(m.seed+last)^before) ^ m.encoder)
	for t := range uint64(m.vocab) {
		to = append(to, float32(int64(mix(key+t*0x9E3779B97F4A7C15)>>44)-1<<19)/(1<<17))
	}
	return to
}

// lane is a search with what a cache would hold: the sequence of every row, which follows the moves.
type lane struct {
	state *State
	model hashModel
	rows  [][]int32
	forks int // steps in which a row's parent was not the row of the same number

	moves   [][]Move // of every position so far
	drafted []int32  // for the step in flight

	draft             func(l *lane, most int) [][]int32 // nil: nothing is drafted
	accepted, refused int                               // positions
	swapped           int                               // drafts in which beams changed places
}

func newLane(t testing.TB, o Options, in Input, model hashModel) *lane {
	t.Helper()
	s := must.Value(New(o, in))(t)
	return &lane{state: s, model: model, rows: [][]int32{in.Prompt}}
}

// follow does to the sequences what a cache does.
func (l *lane) follow(t testing.TB) {
	t.Helper()
	moves := l.state.Moves()
	if len(moves) != l.state.Rows() {
		t.Fatalf("%d moves for %d rows", len(moves), l.state.Rows())
	}
	width := len(l.rows)
	for position := range l.state.Accepted() {
		var same []Move
		for i := range l.rows {
			token := l.drafted[position*width+i]
			l.rows[i], same = append(l.rows[i], token), append(same, Move{i, token})
		}
		l.moves = append(l.moves, same)
	}
	l.accepted, l.refused = l.accepted+l.state.Accepted(), l.refused+len(l.drafted)/width-l.state.Accepted()
	if l.state.Accepted() > 0 && !slices.IsSorted(l.state.order) {
		l.swapped++
	}
	l.moves = append(l.moves, append([]Move{}, moves...))
	next := make([][]int32, len(moves))
	fork := false
	for i, m := range moves {
		if m.Parent < 0 || m.Parent >= len(l.rows) || m.Token < 0 || int(m.Token) >= l.model.vocab {
			t.Fatalf("move %d is %+v with %d rows", i, m, len(l.rows))
		}
		fork = fork || m.Parent != i
		next[i] = append(append([]int32{}, l.rows[m.Parent]...), m.Token)
	}
	if fork {
		l.forks++
	}
	l.rows = next
}

// generate runs lanes as one batch to their end.
func generate(t testing.TB, selector Selector, lanes ...*lane) {
	t.Helper()
	var stepper Stepper
	var logits []float32
	states := make([]*State, len(lanes))
	for i, l := range lanes {
		states[i] = l.state
	}
	for steps := 0; ; steps++ {
		logits = logits[:0]
		for _, l := range lanes {
			for _, row := range l.rows {
				logits = l.model.logits(logits, row)
			}
			if l.drafted = nil; l.draft == nil || l.state.Drafts() == 0 {
				continue
			}
			must.Succeed(t, l.state.Draft(l.draft(l, l.state.Drafts())...))
			l.drafted = append(l.drafted, l.state.Drafted()...)
			rows := make([][]int32, len(l.rows))
			for i := range l.drafted {
				row := i % len(rows)
				if rows[row] == nil {
					rows[row] = append([]int32{}, l.rows[row]...)
				}
				rows[row] = append(rows[row], l.drafted[i])
				logits = l.model.logits(logits, rows[row])
			}
		}
		if len(logits) == 0 {
			return
		}
		if steps > 1000 {
			t.Fatal("no end after 1,000 steps")
		}
		before := append([]float32{}, logits...)
		must.Succeed(t, stepper.Step(selector, logits, lanes[0].model.vocab, states))
		checkRead(t, before, logits, lanes)
		for _, l := range lanes {
			if len(l.rows) > 0 {
				l.follow(t)
			}
		}
	}
}

// checkRead fails where a step changed logits otherwise than by giving rows of a drafted position each other's places.
func checkRead(t testing.TB, before, after []float32, lanes []*lane) {
	t.Helper()
	for _, l := range lanes {
		vocab := l.model.vocab
		for begin := 0; begin < len(l.rows)+len(l.drafted); begin += len(l.rows) {
			n := len(l.rows) * vocab
			was, is := slices.Collect(slices.Chunk(before[:n], vocab)), slices.Collect(slices.Chunk(after[:n], vocab))
			before, after = before[n:], after[n:]
			if begin > 0 {
				slices.SortFunc(was, slices.Compare)
				slices.SortFunc(is, slices.Compare)
			}
			if !slices.EqualFunc(was, is, slices.Equal) {
				t.Fatalf("the step wrote to the logits of position %d", begin/len(l.rows))
			}
		}
	}
}

// readGolden reads a file that testdata/make.py wrote.
func readGolden(t testing.TB, name string, to any) {
	t.Helper()
	f := must.Value(os.Open("testdata/" + name))(t)
	defer f.Close()
	z := must.Value(gzip.NewReader(f))(t)
	must.Succeed(t, json.NewDecoder(z).Decode(to))
}
