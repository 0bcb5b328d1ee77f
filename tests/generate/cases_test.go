package generate

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// options that each kind of search is tried with on every model, as Hugging Face
// names them; beams are those that only a beam search has.
var (
	options = []string{
		"no_repeat_ngram_size", "repetition_penalty", "min_length", "min_new_tokens", "bad_words_ids",
		"forced_eos_token_id", "suppress_tokens", "begin_suppress_tokens", "max_new_tokens", "max_length",
	}
	beams = []string{"length_penalty", "early_stopping", "num_return_sequences"}
)

func load(t *testing.T, model string) *Expected {
	t.Helper()
	e := must.Value(Load(model))(t)
	return e
}

func TestEveryModelIsAskedEverything(t *testing.T) {
	seen := map[string]bool{} // model, kind and option
	for _, name := range Models() {
		e := load(t, name)
		for _, c := range e.Cases {
			if c.Model != name || e.Model != name {
				t.Fatalf("%s holds a case of %q", name, c.Model)
			}
			var given map[string]any
			must.Succeed(t, json.Unmarshal(c.Options, &given), name, c, "options", c.Options)
			for option := range given {
				seen[name+" "+c.Kind+" "+option] = true
			}
		}
		for _, kind := range []string{"greedy", "beam4", "beam8", "diverse4x2"} {
			want := options
			if kind != "greedy" {
				want = slices.Concat(options, beams)
			}
			for _, option := range want {
				if !seen[name+" "+kind+" "+option] {
					t.Errorf("%s has no case of %s with %s", name, kind, option)
				}
			}
		}
	}
}

func TestCasesAreRealAndHoldTogether(t *testing.T) {
	for _, name := range Models() {
		t.Run(name, func(t *testing.T) {
			e := load(t, name)
			if len(e.Cases) != e.Counts.Cases {
				t.Fatalf("%d cases, the head says %d", len(e.Cases), e.Counts.Cases)
			}
			if d := e.Counts.DistinctTokens; d == nil || d.Least < 20 || d.Of < 5 {
				t.Errorf("distinct tokens of 64: %+v, need at least 20 in at least 5 cases", d)
			}
			if r := e.Counts.Reorders; r == nil || r.Least < 0.5 {
				t.Errorf("share of steps that reorder: %+v, need at least 0.5", r)
			}
			if share := float64(e.Counts.WithoutEffect) / float64(e.Counts.Cases); share > 0.15 {
				t.Errorf("%.0f %% of the cases have an option that changes nothing, at most 15 %% may", 100*share)
			}
			for _, c := range e.Cases {
				must.Succeed(t, sound(e, c), c)
			}
		})
	}
}

// sound checks what must hold of any case.
func sound(e *Expected, c Case) error {
	speech := e.FeatureShape != nil
	switch {
	case speech != (len(c.Prompt) == 0):
		return fmt.Errorf("a prompt of %d tokens, features %v", len(c.Prompt), e.FeatureShape)
	case len(c.Prompt) > 60:
		return fmt.Errorf("a prompt of %d tokens, at most 60 are meant", len(c.Prompt))
	case len(c.Sequences) == 0:
		return fmt.Errorf("no answer")
	case c.Kind == "greedy" && (len(c.Sequences) != 1 || len(c.Scores) != 0 || c.Steps != 0):
		return fmt.Errorf("%d answers, %d scores and %d steps of beams of a greedy search",
			len(c.Sequences), len(c.Scores), c.Steps)
	case c.Kind != "greedy" && len(c.Scores) != len(c.Sequences):
		return fmt.Errorf("%d scores of %d sequences", len(c.Scores), len(c.Sequences))
	case !slices.IsSortedFunc(c.Scores, func(a, b float64) int { return int(max(-1, min(1, 1e9*(b-a)))) }):
		return fmt.Errorf("scores %v are not best first", c.Scores)
	case len(c.Scores) > 0 && slices.Min(c.Scores) < -1e5:
		return fmt.Errorf("scores %v: a step had no token left", c.Scores)
	case c.Reorders > c.Steps:
		return fmt.Errorf("%d of %d steps reorder", c.Reorders, c.Steps)
	}
	for _, s := range c.Sequences {
		if len(s) == 0 || len(s) > 64 {
			return fmt.Errorf("a sequence of %d tokens", len(s))
		}
	}
	return nil
}

func TestThereAreAThousandPrompts(t *testing.T) {
	prompts := map[string]bool{}
	for _, name := range Models() {
		for _, c := range load(t, name).Cases {
			prompts[fmt.Sprint(name, c.Prompt, c.FeaturesSeed, c.DecoderPrompt)] = true
		}
	}
	t.Logf("%d different prompts", len(prompts))
	if len(prompts) < 1000 {
		t.Errorf("%d different prompts, need at least 1,000", len(prompts))
	}
}

func TestEveryFolderHasExpectations(t *testing.T) {
	for _, f := range models.SmallFolders() {
		if !slices.Contains(All(), f.Model) {
			t.Errorf("%s: there are no expected tokens for %s", f.Name, f.Model)
		}
	}
}

func TestLoadNamesWhatThereIs(t *testing.T) {
	must.Fail(t, must.Error(Load("gpt3")), `no expected tokens for "gpt3": there are those for arcee`)
}
