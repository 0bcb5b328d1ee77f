package search

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// golden is a case of testdata/generate.json.gz.
type golden struct {
	Name           string                     `json:"name"`
	EncoderDecoder bool                       `json:"encoder_decoder"`
	Seed           uint64                     `json:"seed"`
	Options        map[string]json.RawMessage `json:"options"`
	Prompt         []int32                    `json:"prompt"`
	Encoder        []int32                    `json:"encoder"`
	Sequences      [][]int32                  `json:"sequences"`
	Scores         []float64                  `json:"scores"`
}

const goldenVocab = 48

func (g *golden) lane(t testing.TB) *lane {
	t.Helper()
	o := Default()
	o.BOSTokenID, o.PadTokenID, o.EOSTokenID = 0, 1, []int32{2}
	o.IsEncoderDecoder = g.EncoderDecoder
	o.LateBias = true // written with transformers 4.57
	for name, value := range g.Options {
		must.Succeed(t, o.Set(name, value))
	}
	in := Input{Prompt: g.Prompt, Encoder: g.Encoder, Vocab: goldenVocab}
	return newLane(t, o, in, newHashModel(g.Seed, goldenVocab, g.Encoder))
}

// check compares the results with Hugging Face's.
func (g *golden) check(found []Hypothesis) error {
	if len(found) != len(g.Sequences) {
		return fmt.Errorf("found %d sequences, want %d", len(found), len(g.Sequences))
	}
	for i, h := range found {
		if !slices.Equal(h.Tokens, g.Sequences[i]) {
			return fmt.Errorf("sequence %d:\nfound %v (%.5f)\nwant  %v (%.5f)", i, h.Tokens, h.Score, g.Sequences[i],
				g.Scores[i])
		}
		if diff := math.Abs(h.Score - g.Scores[i]); diff > 1e-4+1e-6*math.Abs(h.Score) {
			return fmt.Errorf("sequence %d: score %.6f, want %.6f", i, h.Score, g.Scores[i])
		}
	}
	return nil
}

// TestHuggingFace: the same tokens and scores as Hugging Face's generate, case by case.
func TestHuggingFace(t *testing.T) {
	var cases []golden
	readGolden(t, "generate.json.gz", &cases)
	if len(cases) < 1800 {
		t.Fatalf("%d cases, 1800 are wanted", len(cases))
	}
	ended, forked, steps, tokens := 0, 0, 0, 0
	for i := range cases {
		g := &cases[i]
		l := g.lane(t)
		generate(t, new(Reference), l)
		if err := g.check(l.state.Results()); err != nil {
			t.Errorf("case %d (%s, seed %d): %v", i, g.Name, g.Seed, err)
		}
		for _, h := range l.state.Results() {
			tokens += len(h.Tokens)
			if h.Ended {
				ended++
				break
			}
		}
		if l.state.o.NumBeams > 1 {
			forked += l.forks
			steps += len(l.state.Results()[0].Tokens)
		}
	}
	t.Logf("%d cases, %d with an end token, %d steps of beams, rows reordered in %d", len(cases), ended, steps, forked)
	if ended < len(cases)/3 || forked < steps/2 {
		t.Error("the cases are too tame to show anything")
	}
}

// TestBatch: an input gives the same in a batch of many as alone, whatever the others do.
func TestBatch(t *testing.T) {
	var cases []golden
	readGolden(t, "generate.json.gz", &cases)
	for start := 0; start < len(cases); start += 37 {
		batch := cases[start:min(start+37, len(cases))]
		lanes := make([]*lane, len(batch))
		for i := range batch {
			lanes[i] = batch[i].lane(t)
		}
		generate(t, new(Reference), lanes...)
		for i := range batch {
			if err := batch[i].check(lanes[i].state.Results()); err != nil {
				t.Errorf("case %d (%s): %v", start+i, batch[i].Name, err)
			}
		}
	}
}
