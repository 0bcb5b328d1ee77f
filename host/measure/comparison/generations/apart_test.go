package generations

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// crashing is the seed of a comparison whose rounds end the process, as a plugin with a fault does.
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
	there := must.Value(Apart(t.Context(), j))(t).Result()
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
	must.Fail(t, must.Error(Apart(t.Context(), j)), worker.ErrEnded, "a plugin may have a fault")
	j.Options.Seed, j.Options.B = 0, "no-such-plugin"
	_, want := Compare(t.Context(), l, set, model, j.Options)
	must.FailExactly(t, must.Error(Apart(t.Context(), j)), want.Error())
	over, cancel := context.WithCancel(t.Context())
	cancel()
	must.Fail(t, must.Error(Apart(over, j)), context.Canceled)
}
