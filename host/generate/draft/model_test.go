package draft

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/generate/search"
)

// pretend lets a Model decide for a text of n tokens over which a draft model is right with a chance a guess. Times
// are of a step of the model, of one of the draft model, and of a row.
func pretend(m *Model, r *rand.Rand, n int, chance func() (confidence, right float64), step, small,
	row float64) (time float64, drafted, accepted int) {
	for at := 0; at < n; {
		var right []bool
		if m.Begin(n-at-1, step, small+row) {
			for more := true; more; {
				confidence, p := chance()
				right = append(right, r.Float64() < p)
				time += small
				more = m.Guess([]int32{int32(len(right))}, confidence, small, row)
			}
		}
		length := 0
		if list := m.Drafted(); list != nil {
			length = len(list[0])
		}
		a := 0
		for a < length && right[a] {
			a++
		}
		token := int32(-1)
		if a < len(right) && right[a] {
			token = int32(a + 1)
		}
		m.Chosen(a, []search.Move{{Token: token}})
		time += step + row*float64(length)
		drafted, accepted, at = drafted+length, accepted+a, at+a+1
	}
	return time, drafted, accepted
}

// TestModelDraftsWhatPays: with times of a large and a small model, drafts gain where the small one is often right,
// cost little where it is not, and are as good as the best fixed length.
func TestModelDraftsWhatPays(t *testing.T) {
	const n, step, row = 4000, 1.0, 0.06
	sure := func(p float64) func() (float64, float64) { return func() (float64, float64) { return p, p } }
	r := rand.New(rand.NewPCG(17, 41))
	mixed := func() (float64, float64) { // sure of half of its guesses, and right about these
		if r.IntN(2) == 0 {
			return 0.95, 0.97
		}
		return 0.2, 0.3
	}
	for _, c := range []struct {
		name   string
		chance func() (float64, float64)
		small  float64
		least  float64 // of the time without drafts over that with them
	}{
		{"right nine times in ten, a tenth of the time", sure(0.9), 0.1, 2.3},
		{"right seven times in ten, a fifth of the time", sure(0.7), 0.2, 1.3},
		{"sure of half", mixed, 0.1, 1.4},
		{"never right", sure(0.001), 0.1, 0.97},
		{"right half of the time, as slow as the model", sure(0.5), 1, 0.97},
		{"always right, as slow as the model", sure(1), 1, 0.97},
		{"overconfident", func() (float64, float64) { return 0.99, 0.1 }, 0.2, 0.97},
	} {
		m := NewModel(&Trust{}, 0)
		time, drafted, accepted := pretend(m, r, n, c.chance, step+row, c.small, row)
		gain := n * (step + row) / time
		t.Logf("%-50s %.3fx, %d of %d accepted", c.name, gain, accepted, drafted)
		if gain < c.least {
			t.Errorf("%s: %.3fx, needed %.2fx", c.name, gain, c.least)
		}
	}
}

// TestModelTriesAgain: where drafts stopped since they did not pay, they begin again when they would.
func TestModelTriesAgain(t *testing.T) {
	r := rand.New(rand.NewPCG(17, 42))
	m := NewModel(&Trust{}, 0)
	pretend(m, r, 500, func() (float64, float64) { return 0.8, 0.02 }, 1.06, 0.1, 0.06)
	time, _, _ := pretend(m, r, 2000, func() (float64, float64) { return 0.8, 0.95 }, 1.06, 0.1, 0.06)
	if gain := 2000 * 1.06 / time; gain < 1.7 {
		t.Errorf("%.3fx after a text of which nothing was right", gain)
	}
}

// TestModelBounds: no draft is longer than what may come, or than was asked for; a guess that is not worth its row is
// compared, and not drafted.
func TestModelBounds(t *testing.T) {
	for _, c := range []struct{ longest, most, want int }{{0, 100, Longest}, {0, 3, 3}, {5, 100, 5}, {0, 0, 0},
		{40, 100, 40}} {
		m := NewModel(&Trust{}, c.longest)
		more := m.Begin(c.most, 1, 1e-9)
		for n := int32(0); more; n++ {
			more = m.Guess([]int32{n, -n}, 1, 1e-9, 1e-9)
		}
		if c.want == 0 {
			if m.Drafted() != nil {
				t.Errorf("%+v: %v", c, m.Drafted())
			}
			continue
		}
		got := m.Drafted()
		if len(got) != 2 || len(got[0]) != c.want || len(got[1]) != c.want || got[1][c.want-1] != int32(1-c.want) {
			t.Errorf("%+v: %v", c, got)
		}
		m.Chosen(0, []search.Move{{Parent: 0, Token: 9}, {Parent: 1, Token: 9}})
		if m.Drafted() != nil {
			t.Error("a draft is left after its step")
		}
	}
	call := &Trust{}
	m := NewModel(call, 0)
	m.Begin(9, 1, 0.2)
	if m.Guess([]int32{4}, 0.01, 0.1, 0.6) || m.Drafted() != nil {
		t.Errorf("a guess of the chance %g was drafted for 0.6 of a step: %v", trusted[classes-1], m.Drafted())
	}
	m.Chosen(0, []search.Move{{Token: 4}})
	if call.levels.right[classes-1] != 1 || call.all.tried[0] != 1 {
		t.Errorf("a guess that was not drafted was not compared: %+v", call)
	}
}

// TestModelOfBeams: a guess is right where each row goes on once, in whatever order.
func TestModelOfBeams(t *testing.T) {
	for _, c := range []struct {
		moves []search.Move
		right float64
	}{
		{[]search.Move{{Parent: 0, Token: 3}, {Parent: 1, Token: 4}}, 1},
		{[]search.Move{{Parent: 1, Token: 3}, {Parent: 0, Token: 4}}, 0},
		{[]search.Move{{Parent: 1, Token: 4}, {Parent: 0, Token: 3}}, 1},
		{[]search.Move{{Parent: 0, Token: 3}, {Parent: 0, Token: 3}}, 0},
		{[]search.Move{{Parent: 0, Token: 3}, {Parent: 1, Token: 5}}, 0},
		{[]search.Move{{Parent: 0, Token: 3}}, 0},
	} {
		call := &Trust{}
		m := NewModel(call, 0)
		m.Begin(1, 1, 1e-9)
		m.Guess([]int32{3, 4}, 0.95, 1e-9, 1e-9)
		m.Chosen(0, slices.Clone(c.moves))
		if call.all.right[0] != c.right || call.all.tried[0] != 1 {
			t.Errorf("%v: %g right of %g", c.moves, call.all.right[0], call.all.tried[0])
		}
	}
}
