package generate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestManyPromptsOfQuantisedFolders counts over how many random prompts the engine generates ONNX Runtime's tokens of
// a folder that others quantised:
//
//	GRAFT_TEST_PROBLEMS=500 go test -v -timeout 3h -run TestManyPromptsOfQuantisedFolders ./tests/generate
//
// Three in four prompts are continued greedily, the others by four beams. ONNX Runtime runs the same files twice,
// with its optimiser and without. Where nothing is rounded but weights, all tokens are equal. Where rows are rounded
// to eight bits as a model runs, the last bit of a number decides between two integers: over how many prompts ONNX
// Runtime's two runs differ says how often, and the engine may differ in a tenth of those that are equal there.
func TestManyPromptsOfQuantisedFolders(t *testing.T) {
	prompts, err := strconv.Atoi(os.Getenv("GRAFT_TEST_PROBLEMS"))
	if err != nil {
		t.Skip("GRAFT_TEST_PROBLEMS is the number of prompts, 500 for the figure in docs/performance.md")
	}
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	for _, c := range []struct {
		by      quantisation
		rounds  bool // rows, as it runs
		meaning bool // what the operators mean is what ONNX Runtime computes without its optimiser only
		alone   bool // rows are rounded by the greatest of a whole tensor, so that what else is in a batch counts
	}{
		{by: matMulNBits(4, 32, false, 0)},
		{by: matMulNBits(4, 32, true, 0)},
		{by: matMulNBits(8, 32, false, 0)},
		{by: matMulNBits(8, 32, true, 0)},
		{by: matMulNBits(4, 32, false, 4), rounds: true},
		{by: matMulNBits(4, 32, true, 4), rounds: true},
		{by: matMulNBits(8, 32, false, 4), rounds: true},
		{by: matMulNBits(8, 32, true, 4), rounds: true},
		{by: dequantised(false), meaning: true},
		{by: dequantised(true), rounds: true},
		{by: dynamic, rounds: true, alone: true},
	} {
		folders := []string{"gpt2", "llama", "bart"}
		for n, folder := range folders {
			prompts := (prompts + n) / len(folders)
			t.Run(c.by.name+"/"+folder, func(t *testing.T) {
				dir := t.TempDir()
				must.Succeed(t, models.Small(folder, dir))
				if n := quantise(t, dir, c.by); n < 8 {
					t.Fatalf("%d linear layers were quantised", n)
				}
				o := decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20, Threads: 1, Batch: 8}
				if c.alone {
					o.Batch = 1
				}
				var runtimes [2][][][]int32
				var e *Expected
				for i, level := range []session.OptimizationLevel{session.OptimizeDefault, session.OptimizeNone} {
					x := must.Value(exported.OpenAt(t.Context(), dir, o, level))(t)
					defer x.Close()
					e = randomCases(prompts, x.Config().Vocab)
					runtimes[i] = together(t, x, e,
						func(object []byte) (search.Options, error) { return decode.SearchOf(dir, x.Config(), object) })
				}
				g := must.Value(decode.Open(t.Context(), dir, o))(t)
				defer g.Close()
				got := together(t, g, e, g.SearchWith)
				var optimised, plain, own, alone int
				for i := range got {
					a, b, y := fmt.Sprint(runtimes[0][i]), fmt.Sprint(runtimes[1][i]), fmt.Sprint(got[i])
					switch {
					case a != b:
						own++
					case y != a:
						alone++
						t.Logf("%s %d, prompt %v:\n%s, want\n%s", e.Cases[i], i, e.Cases[i].Prompt, y, a)
					}
					if y == a {
						optimised++
					}
					if y == b {
						plain++
					}
				}
				t.Logf("of %d prompts %d are as in ONNX Runtime, %d as in ONNX Runtime without its optimiser; ONNX Runtime's "+
					"own two differ in %d, and where they are equal, the engine differs in %d",
					prompts, optimised, plain, own, alone)
				switch {
				case !c.rounds && plain != prompts:
					t.Errorf("%d of %d prompts are not as in ONNX Runtime without its optimiser", prompts-plain, prompts)
				case !c.rounds && !c.meaning && optimised != prompts:
					t.Errorf("%d of %d prompts are not as in ONNX Runtime", prompts-optimised, prompts)
				case c.rounds && 100*alone > 10*prompts+100:
					t.Errorf("%d of %d prompts are equal in ONNX Runtime's two runs and not in the engine, at most 10 of a hundred "+
						"may be", alone, prompts)
				}
			})
		}
	}
}

// randomCases are prompts of 1 to 60 tokens, a third of them of a few tokens that come again.
func randomCases(n, vocab int) *Expected {
	e := &Expected{}
	for i := range n {
		r := rand.New(rand.NewPCG(uint64(i), 500))
		words := make([]int64, vocab-3)
		for j := range words {
			words[j] = int64(3 + j)
		}
		if i%3 == 2 {
			r.Shuffle(len(words), func(a, b int) { words[a], words[b] = words[b], words[a] })
			words = words[:6]
		}
		c := Case{Kind: "greedy", Options: []byte(`{"max_new_tokens": 32}`)}
		if i%4 == 3 {
			c.Kind, c.Options = "beam4", []byte(`{"max_new_tokens": 32, "num_beams": 4}`)
		}
		for range 1 + r.IntN(60) {
			c.Prompt = append(c.Prompt, words[r.IntN(len(words))])
		}
		e.Cases = append(e.Cases, c)
	}
	// a batch of the model as exported has one length
	slices.SortStableFunc(e.Cases, func(a, b Case) int { return len(a.Prompt) - len(b.Prompt) })
	return e
}

// together are the tokens of each case, cases of the same options in flight at once.
func together(t *testing.T, g generate.Device, e *Expected,
	searchWith func([]byte) (search.Options, error)) [][][]int32 {
	t.Helper()
	list := make([][][]int32, len(e.Cases))
	var kinds []string
	for _, c := range e.Cases {
		if !slices.Contains(kinds, string(c.Options)) {
			kinds = append(kinds, string(c.Options))
		}
	}
	for _, kind := range kinds {
		o := must.Value(searchWith([]byte(kind)))(t)
		at := -1
		must.Succeed(t, g.Run(t.Context(), o, func() (*decode.Input, error) {
			for at++; at < len(e.Cases); at++ {
				if string(e.Cases[at].Options) == kind {
					in := inputOf(e, e.Cases[at])
					in.Index = uint64(at)
					return in, nil
				}
			}
			return nil, nil
		}, func(out decode.Output) error {
			for _, h := range out.Hypotheses {
				list[out.Index] = append(list[out.Index], h.Tokens)
			}
			return nil
		}))
	}
	return list
}
