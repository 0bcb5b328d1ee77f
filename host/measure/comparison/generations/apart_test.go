package generations

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// crashing is the seed of a comparison whose rounds end the process, as a plugin with a fault does, and the number of
// workers of an ablation of which a row does.
const crashing = 0xdead

func TestMain(m *testing.M) {
	tasks := Tasks()
	start, timed, seed := tasks[taskStart], tasks[taskRound], uint64(0)
	tasks[taskStart] = func(ctx context.Context, request json.RawMessage) (any, error) {
		var j Job[Options]
		err := json.Unmarshal(request, &j)
		if seed = j.Options.Seed; err != nil {
			return nil, err
		}
		return start(ctx, request)
	}
	tasks[taskRound] = func(ctx context.Context, request json.RawMessage) (any, error) {
		if seed == crashing {
			return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return timed(ctx, request)
	}
	begin, first, workers := tasks[taskAblation], tasks[taskRowFirst], 0
	tasks[taskAblation] = func(ctx context.Context, request json.RawMessage) (any, error) {
		var j Job[AblationOptions]
		err := json.Unmarshal(request, &j)
		if workers = j.Options.Workers; err != nil {
			return nil, err
		}
		return begin(ctx, request)
	}
	tasks[taskRowFirst] = func(ctx context.Context, request json.RawMessage) (any, error) {
		if workers == crashing {
			return nil, syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
		return first(ctx, request)
	}
	worker.Main(tasks)
	os.Exit(m.Run())
}

// TestApart: in a child process a comparison says what it says in this one, and a round that ends the child is an
// error.
func TestApart(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	folder := must.Value(filepath.Abs("../../../../build/plugins"))(t)
	set := must.Value(loaded.Load([]string{folder}, true))(t)
	model := "../../../../models/g2p"
	o := Options{A: "none", B: "auto", Search: []byte(`{"max_new_tokens": 5, "num_beams": 2}`), Batch: 2, PromptLength: 6,
		Rounds: 2, CacheBytes: 64 << 20}
	here := must.Value(Compare(t.Context(), l, set, model, o))(t)
	var told [][2]int64
	var steps []string
	o.Progress = func(done, total int64) { told = append(told, [2]int64{done, total}) }
	o.Step = func(what string) { steps = append(steps, what) }
	j := Job[Options]{Folder: model, Options: o, Folders: []string{folder}}
	there := must.Value(Apart(t.Context(), j))(t)
	if len(there.A.Seconds) != 4 || len(there.B.TTFTSeconds) != 4 || there.Environment.ONNXRuntime != l.Version() ||
		there.StepFloor == nil {
		t.Errorf("%+v", there)
	}
	if there.Equal != here.Equal || there.Sequences != 2 || there.NewTokens != here.NewTokens || there.NewTokens == 0 ||
		there.B.CacheBytes != here.B.CacheBytes ||
		there.ReorderShare != here.ReorderShare || !slices.Equal(there.B.Plugins, here.B.Plugins) ||
		len(there.B.Attention) != len(here.B.Attention) {
		t.Errorf("%+v in the child, %+v here", there, here)
	}
	if len(told) == 0 || told[len(told)-1] != [2]int64{2, 2} || !slices.Contains(steps, "generating with auto") {
		t.Errorf("progress %v, steps %q", told, steps)
	}

	j.Options.Seed = crashing
	if _, err := Apart(t.Context(), j); !errors.Is(err, worker.ErrEnded) ||
		!strings.Contains(err.Error(), "a plugin may have a fault") {
		t.Errorf("a round that crashes: %v", err)
	}
	j.Options.Seed, j.Options.B = 0, "no-such-plugin"
	_, want := Compare(t.Context(), l, set, model, j.Options)
	if _, err := Apart(t.Context(), j); err == nil || err.Error() != want.Error() {
		t.Errorf("%v in the child, %v here", err, want)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Apart(over, j); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestAblate: every row gives the texts of the first, and a row that ends the child is an error, as is a text that is
// none.
func TestAblate(t *testing.T) {
	folder := must.Value(filepath.Abs("../../../../build/plugins"))(t)
	var told []int64
	o := AblationOptions{
		Search: []byte(`{"max_new_tokens": 5, "num_beams": 2, "no_repeat_ngram_size": 2}`),
		Inputs: [][]byte{[]byte("hello"), []byte("world"), []byte("soak")},
		Batch:  2, Rounds: 2, CacheBytes: 64 << 20, Progress: func(done, _ int64) { told = append(told, done) },
	}
	j := Job[AblationOptions]{Folder: "../../../../models/g2p", Options: o, Folders: []string{folder}}
	r := must.Value(Ablate(t.Context(), j))(t)
	var rows []string
	for _, row := range r.Rows {
		rows = append(rows, row.Technique)
		if row.Equal != 3 || len(row.Seconds) != 2 || row.TokensPerSecond <= 0 {
			t.Errorf("%+v", row)
		}
	}
	if !r.Equal || r.NewTokens == 0 || r.InputTokens == 0 || r.Environment.ONNXRuntime == "" ||
		!slices.Equal(told, []int64{1, 2}) {
		t.Errorf("%+v, told %v", r, told)
	}
	if len(rows) < 6 || !slices.Equal(rows[:5],
		[]string{techniqueBaseline, techniqueBatch, techniquePipeline, techniqueIndex, techniqueCache}) {
		t.Errorf("rows %q", rows)
	}

	j.Options.Workers = crashing
	if _, err := Ablate(t.Context(), j); !errors.Is(err, worker.ErrEnded) || !strings.Contains(err.Error(), "baseline: ") {
		t.Errorf("a row that crashes: %v", err)
	}
	j.Options.Workers, j.Options.Inputs = 0, [][]byte{[]byte("hello"), []byte("\xff")}
	if _, err := Ablate(t.Context(), j); err == nil || !strings.Contains(err.Error(), "UTF-8") {
		t.Errorf("a text that is not UTF-8: %v", err)
	}
	j.Options.Inputs = nil
	if _, err := Ablate(t.Context(), j); err == nil {
		t.Error("an ablation without texts")
	}
}
