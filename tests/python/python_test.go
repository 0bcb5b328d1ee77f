package python

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// lengths at which fixtures are run: two rows, three tokens after a past.
var lengths = map[string]int64{
	"batch_size": 2, "sequence_length": 3, "past_sequence_length": 19, "past_decoder_sequence_length": 21,
	"encoder_sequence_length": 29, "past_encoder_sequence_length": 29, "decoder_sequence_length": 1, "kv_cache_dim": 16,
	"num_channels": 3, "height": 32, "width": 32, "text_batch_size": 2, "image_batch_size": 2,
}

// refused are the fixtures that a Python runtime does not load unpatched, by
// runtime and the beginning of the fixture's name, and why.
var refused = map[string]map[string]refusal{
	"old": {
		"dynamo23/": {"ONNX Runtime 1.22 supports opsets up to 22", "Opset 23"},
		"genai/":    {"its GroupQueryAttention has inputs that ONNX Runtime 1.22 does not know", "GroupQueryAttention"},
	},
	"new": {},
}

// A refusal is why a runtime does not load a model, and what its error says.
type refusal struct{ why, says string }

// A job is a model for compare.py.
type job struct {
	Name      string            `json:"name"`
	Model     string            `json:"model"`
	Patched   string            `json:"patched"`
	Libraries []string          `json:"libraries"`
	Inputs    map[string]string `json:"inputs"`
}

// An answer is what compare.py says of a job.
type answer struct {
	Version string
	Name    string
	Stage   string
	Error   string
	Outputs []struct {
		Name        string
		Type        string
		Shape       []int64
		Disagree    int64
		Size        int64
		Finite      int64
		MaxAbsolute float64 `json:"max_absolute"`
		Problem     string
	}
}

func TestPatchedFiles(t *testing.T) {
	library := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	var jobs []job
	two := false
	for _, f := range models.Fixtures() {
		if f.Exporter == "full" {
			continue
		}
		j := must.Value(write(t, library, set, f))(t, f)
		if len(j.Libraries) == 0 {
			t.Logf("%s: nothing can be replaced in it", f)
			continue
		}
		jobs = append(jobs, j)
		two = two || len(j.Libraries) > 1
	}
	if !two {
		t.Error("no fixture uses two plugins at once")
	}
	for _, peer := range []string{"old", "new"} {
		t.Run(peer, func(t *testing.T) {
			t.Parallel()
			check(t, peer, jobs)
		})
	}
}

// write writes a fixture, its patched file and inputs for both.
func write(t *testing.T, library *ort.Library, set *loaded.Set, f models.Fixture) (job, error) {
	folder := t.TempDir()
	// In a folder of its own, because a patched file carries its weights.
	j := job{Name: f.String(), Model: filepath.Join(folder, "model.onnx"),
		Patched: filepath.Join(t.TempDir(), "patched.onnx"), Inputs: map[string]string{}}
	if err := f.Write(j.Model, 1); err != nil {
		return j, err
	}
	m, err := model.Open(j.Model)
	if err != nil {
		return j, err
	}
	defer m.Close()
	a, err := patch.Analyse(t.Context(), m, set.Manifests(), set.Plan(plan.Options{Force: true}))
	if err != nil {
		return j, err
	}
	for _, c := range a.Plan.Choices {
		if c.Operator == nil && c.Block != nil && c.Block.Obstacle == "" {
			t.Errorf("%s: %s is left unchanged under Force: %s", f, c.Node, c.Reason)
		}
	}
	if err := a.Settle(t.Context(), set.Manifests(), set.Plan(plan.Options{Force: true})); err != nil {
		return j, err
	}
	patched, err := graft.Patch(context.Background(), j.Model, j.Patched,
		graft.Options{Common: graft.Common{Force: true, AcceptUnverified: true}})
	if planned := a.Plan.Replaced(); planned == 0 && errors.Is(err, graft.ErrNothingReplaced) {
		return j, nil
	} else if err == nil && planned != patched.Replaced {
		t.Errorf("%s: %d blocks are planned, %d were replaced", f, planned, patched.Replaced)
	}
	if err != nil {
		return j, err
	}
	j.Libraries = patched.Libraries
	dims := maps.Clone(lengths)
	if f.Exporter == "genai" {
		dims["sequence_length"] = 1 // GroupQueryAttention takes more after a past for one row only
	}
	batch, err := inputs.Make(library, j.Model, inputs.Options{Seed: 1, Dims: dims, LooseDims: true})
	if err != nil {
		return j, err
	}
	defer batch.Close()
	for i, name := range slices.Sorted(maps.Keys(batch.Values)) {
		path := filepath.Join(folder, fmt.Sprintf("input_%d.pb", i))
		if err := writeTensor(path, batch.Values[name]); err != nil {
			return j, err
		}
		j.Inputs[name] = path
	}
	return j, nil
}

func writeTensor(path string, v *ort.Value) error {
	raw, err := v.Bytes()
	if err != nil {
		return err
	}
	data, err := proto.Marshal(&onnx.Tensor{Dims: v.Shape(), DataType: proto.Int32(int32(v.Element())), RawData: raw})
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// check runs the jobs in one of the Python runtimes.
func check(t *testing.T, peer string, jobs []job) {
	answers := compare(t, peer, jobs)
	if len(answers) != len(jobs)+1 {
		t.Fatalf("%d answers to %d jobs", len(answers)-1, len(jobs))
	}
	t.Logf("onnxruntime %s", answers[0].Version)
	if peer == "old" && !strings.HasPrefix(answers[0].Version, "1.22.") {
		t.Errorf("the oldest runtime that patched files are for is 1.22, found %s", answers[0].Version)
	}
	met := map[string]bool{}
	for i, a := range answers[1:] {
		t.Run(a.Name, func(t *testing.T) {
			for beginning, r := range refused[peer] {
				if !strings.HasPrefix(a.Name, beginning) {
					continue
				}
				met[beginning] = true
				if a.Stage != "model" || !strings.Contains(a.Error, r.says) {
					t.Errorf("it is said to be refused unpatched (%s), found: %s %s", r.why, a.Stage, a.Error)
				}
				return
			}
			if a.Error != "" {
				t.Fatalf("%s: %s", a.Stage, a.Error)
			}
			for _, o := range a.Outputs {
				if o.Disagree > 0 {
					t.Errorf("%s %s%v: %d elements disagree, max %g absolute %s", o.Name, o.Type, o.Shape, o.Disagree, o.MaxAbsolute,
						o.Problem)
				}
				if o.Size > 0 && o.Finite == 0 {
					t.Errorf("%s has no finite element to compare", o.Name)
				}
			}
			if len(a.Outputs) == 0 {
				t.Error("no output was compared")
			}
			t.Logf("%d plugins, %d outputs equal", len(jobs[i].Libraries), len(a.Outputs))
		})
	}
	for beginning := range refused[peer] {
		if !met[beginning] {
			t.Errorf("no fixture begins with %s, which is said to be refused", beginning)
		}
	}
}

func compare(t *testing.T, peer string, jobs []job) []answer {
	t.Helper()
	program := filepath.Join("..", "..", "build", "peers", peer, "bin", "python")
	if _, err := os.Stat(program); err != nil {
		t.Fatalf("the Python environment is not there: %v; run `make peers`", err)
	}
	in := must.Value(json.Marshal(jobs))(t)
	var out, talk bytes.Buffer
	cmd := exec.CommandContext(t.Context(), program, "compare.py")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(in), &out, &talk
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v after %d bytes of answers\n%s", program, err, out.Len(), talk.String())
	}
	var answers []answer
	for d := json.NewDecoder(&out); d.More(); {
		var a answer
		must.Succeed(t, d.Decode(&a))
		answers = append(answers, a)
	}
	return answers
}
