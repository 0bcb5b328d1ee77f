package generate

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/generate/text"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestQuantizedFolders: of models that others quantised, the engine generates the tokens that ONNX Runtime generates
// of the same files, and multiplies with the integers that the files hold. Where rows are rounded to eight bits as a
// model runs, the last bit of a number decides between two integers, and a token may differ once in a while.
func TestQuantizedFolders(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	shortly := "nothing"
	for _, c := range []struct {
		by      quantisation
		folders []string
		holds   string                    // what the report calls weights; "" where the graph's own nodes multiply
		differ  int                       // cases of a hundred that may differ
		level   session.OptimizationLevel // of ONNX Runtime
	}{
		{matMulNBits(4, 32, false, 0), []string{"gpt2", "llama", "bart", "t5-merged", "gpt2-merged", "whisper"},
			"int4 of the model", 0, session.OptimizeDefault},
		{matMulNBits(4, 16, true, 0), []string{"llama"}, "", 0, session.OptimizeDefault},
		{matMulNBits(4, 64, true, 0), []string{"llama", "bart"}, "int4 of the model", 0, session.OptimizeDefault},
		{matMulNBits(4, 128, true, 4), []string{"gpt2"}, "int4 of the model", 10, session.OptimizeDefault},
		{matMulNBits(4, 32, false, 4), []string{"llama"}, "int4 of the model", 10, session.OptimizeDefault},
		{matMulNBits(8, 32, true, 0), []string{"gpt2", "llama"}, "int8 of the model", 0, session.OptimizeDefault},
		{matMulNBits(8, 64, false, 4), []string{"gpt2", "llama"}, "int8 of the model", 10, session.OptimizeDefault},
		// ONNX Runtime's optimiser makes a MatMulNBits of them that rounds rows
		{dequantised(false), []string{"gpt2", "bart"}, "int8 of the model", 0, session.OptimizeNone},
		{dequantised(true), []string{"llama", "gpt2"}, "int8 of the model", 10, session.OptimizeDefault},
		{dynamic, []string{"gpt2", "llama", "bart"}, "", 10, session.OptimizeDefault},
	} {
		for i, folder := range c.folders {
			if testing.Short() && (i > 0 || c.holds == shortly) {
				break
			}
			shortly = c.holds // one way of each
			t.Run(c.by.name+"/"+folder, func(t *testing.T) {
				dir := t.TempDir()
				must.Succeed(t, models.Small(folder, dir))
				if n := quantise(t, dir, c.by); n < 8 {
					t.Fatalf("%d linear layers were quantised", n)
				}
				at := slices.IndexFunc(models.SmallFolders(), func(f models.SmallFolder) bool { return f.Name == folder })
				e := must.Value(Load(models.SmallFolders()[at].Model))(t)
				e.Cases = slices.DeleteFunc(slices.Clone(e.Cases),
					func(c Case) bool { return c.Option != "" || c.Kind != "greedy" && c.Kind != "beam4" })
				if testing.Short() {
					e.Cases = few(e.Cases)
				}
				x := must.Value(exported.OpenAt(t.Context(), dir, decode.Options{Library: l, Plugins: set, Threads: 1}, c.level))(t)
				defer x.Close()
				want := generated(t, x, e,
					func(object []byte) (search.Options, error) { return decode.SearchOf(dir, x.Config(), object) })
				g := must.Value(decode.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set,
					CacheBytes: 64 << 20, Threads: 1}))(t)
				defer g.Close()
				if r := g.Weights(); c.holds != "" && (len(r.Linear) == 0 || r.Linear[0].Type != c.holds) {
					t.Errorf("weights are %+v, want %s", r, c.holds)
				}
				got := generated(t, g, e, g.SearchWith)
				differ := 0
				for i := range want {
					if fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
						differ++
						t.Logf("%s, prompt %v:\n%v, want\n%v", e.Cases[i], e.Cases[i].Prompt, got[i], want[i])
					}
				}
				t.Logf("%d of %d differ", differ, len(want))
				if len(want) < 8 || 100*differ > c.differ*len(want) {
					t.Errorf("%d of %d cases differ, at most %d of a hundred may", differ, len(want), c.differ)
				}
			})
		}
	}
}

// generated are the tokens of each case, one case at a time.
func generated(t *testing.T, g generate.Device, e *Expected,
	searchWith func([]byte) (search.Options, error)) [][][]int32 {
	t.Helper()
	list := make([][][]int32, len(e.Cases))
	for i, c := range e.Cases {
		o := must.Value(searchWith(c.Options))(t, c)
		given := false
		must.Succeed(t, g.Run(t.Context(), o, func() (*decode.Input, error) {
			if given {
				return nil, nil
			}
			given = true
			return inputOf(e, c), nil
		}, func(out decode.Output) error {
			for _, h := range out.Hypotheses {
				list[i] = append(list[i], h.Tokens)
			}
			return nil
		}), c)
	}
	return list
}

// TestQuantizedFolderOfACaller compares tokens, greedy and of four beams, on a folder of one's own, from stretches of
// a text: GRAFT_TEST_FOLDER, GRAFT_TEST_TEXT, and GRAFT_TEST_PROBLEMS for the number of prompts, 20 otherwise. All
// are to be equal, unless GRAFT_TEST_DIFFER says how many of a hundred may differ, of a model that rounds rows as it
// runs.
func TestQuantizedFolderOfACaller(t *testing.T) {
	folder, path := os.Getenv("GRAFT_TEST_FOLDER"), os.Getenv("GRAFT_TEST_TEXT")
	if folder == "" || path == "" {
		t.Skip("GRAFT_TEST_FOLDER and GRAFT_TEST_TEXT name a model folder and a text")
	}
	prompts := 20
	if n, err := strconv.Atoi(os.Getenv("GRAFT_TEST_PROBLEMS")); err == nil {
		prompts = n
	}
	raw := must.Value(os.ReadFile(path))(t)
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	o := decode.Options{Library: l, Plugins: set, Batch: 1}
	g := must.Value(generate.Open(t.Context(), folder, o))(t)
	defer g.Close()
	x := must.Value(generate.OpenExported(t.Context(), folder, o))(t)
	defer x.Close()
	t.Logf("weights: %+v", g.Device.(*decode.Generator).Weights())
	words := strings.Fields(string(raw))
	e := &Expected{}
	for i := range prompts {
		at := (i * 997) % max(1, len(words)-64)
		ids, err := g.Tokenizer.Encode(t.Context(), strings.Join(words[at:min(len(words), at+16+i%48)], " "),
			text.EncodeOptions{})
		must.Succeed(t, err)
		c := Case{Kind: "greedy", Options: []byte(`{"max_new_tokens": 32}`)}
		if i%4 == 3 {
			c.Kind, c.Options = "beam4", []byte(`{"max_new_tokens": 32, "num_beams": 4}`)
		}
		c.Prompt = ids
		e.Cases = append(e.Cases, c)
	}
	with := func(object []byte) (search.Options, error) { return decode.SearchOf(folder, g.Config(), object) }
	want, got := generated(t, x.Device, e, with), generated(t, g.Device, e, with)
	differ := 0
	for i := range want {
		if fmt.Sprint(got[i]) != fmt.Sprint(want[i]) {
			differ++
			t.Logf("%s %d:\n%v, want\n%v", e.Cases[i], i, got[i], want[i])
		}
	}
	t.Logf("%d of %d differ", differ, len(want))
	allowed, _ := strconv.Atoi(os.Getenv("GRAFT_TEST_DIFFER")) // 0 where it is no number
	if 100*differ > allowed*len(want) {
		t.Errorf("%d of %d prompts differ, at most %d of a hundred may", differ, len(want), allowed)
	}
}
