package parity

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/internal/sample"
	"github.com/opgraft/graft/models"
)

// shape is how long the inputs of a run are, and where its rows but the first are padded.
type shape struct {
	rows, tokens, past, read int64 // read by the encoder of a decoder
	padding                  string
}

func (s shape) String() string {
	return fmt.Sprintf("%d rows of %d after %d, %s", s.rows, s.tokens, s.past, s.padding)
}

// shapes are the twelve of the promise: that a model which ONNX Runtime runs is run by a patched session too, with
// the same answers.
var shapes = []shape{
	{1, 1, 0, 5, "none"}, {1, 1, 16, 9, "none"}, {1, 7, 0, 1, "none"}, {1, 33, 16, 7, "none"},
	{2, 9, 0, 6, "left"}, {3, 5, 0, 11, "right"}, {3, 1, 17, 6, "left"}, {2, 4, 8, 8, "left"},
	{4, 16, 0, 3, "left"}, {3, 1, 30, 12, "right"}, {2, 33, 0, 33, "right"}, {5, 3, 2, 4, "left"},
}

// graphs are all small graphs: where they come from, and what writes them to a file.
func graphs(t *testing.T) map[string]func(t *testing.T) string {
	list := map[string]func(t *testing.T) string{}
	for _, f := range models.Fixtures() {
		if f.Exporter != "full" {
			list[f.String()] = func(t *testing.T) string {
				path := filepath.Join(t.TempDir(), "model.onnx")
				must.Succeed(t, f.Write(path, 1))
				return path
			}
		}
	}
	for _, f := range models.SmallFolders() {
		if slices.Contains(wideHeads, f.Name) {
			continue
		}
		for _, file := range f.Files {
			list["small/"+f.Name+"/"+file] = func(t *testing.T) string {
				dir := t.TempDir()
				must.Succeed(t, models.Small(f.Name, dir))
				return filepath.Join(dir, file+".onnx")
			}
		}
	}
	return list
}

// wideHeads are folders that ONNX Runtime runs at no shape: its GroupQueryAttention turns heads of 16, 32 and so on,
// and these have 24.
var wideHeads = []string{"qwen3-genai"}

// TestShapes runs every small graph plain and with the default patch, at three of the twelve shapes; where
// GRAFT_SHAPES is "all" at all of them, and with every operator forced too; a sample is a quarter of the graphs. Shapes
// for which ONNX Runtime itself gives no answer do not count.
func TestShapes(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	all := os.Getenv("GRAFT_SHAPES") == "all"
	ran := 0
	written := graphs(t)
	for i, name := range slices.Sorted(maps.Keys(written)) {
		if !sample.Has(i, 4) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			at := shapes
			if !all {
				random := rand.New(rand.NewPCG(uint64(i), 12))
				at = nil
				for _, k := range random.Perm(len(shapes))[:3] {
					at = append(at, shapes[k])
				}
			}
			n := agree(t, l, set, written[name](t), at, all)
			if ran += n; all && n == 0 {
				t.Error("ONNX Runtime runs it at none of the shapes")
			}
		})
	}
	t.Logf("%d runs were compared", ran)
}

// agree compares patched sessions, one with every operator where that is asked for, with a plain one, and returns at
// how many shapes the plain one runs.
func agree(t *testing.T, l *ort.Library, set *loaded.Set, path string, at []shape, forced bool) (ran int) {
	t.Helper()
	plain := must.Value(session.Open(l, path, session.Options{Unpatched: true, IntraOpThreads: 1}))(t)
	defer plain.Close()
	patched := map[string]*session.Session{}
	replaced := -1
	for _, force := range []bool{false, true} {
		if force && !forced {
			break
		}
		n := 0
		patcher := &sessions.Patcher{Plugins: set.Plugins, Options: set.Plan(plan.Options{Force: force})}
		s, err := session.Open(l, path, session.Options{IntraOpThreads: 1,
			Patcher: func(r session.Request) (*session.Patch, error) {
				p, err := patcher.Plan(t.Context(), r)
				if err != nil {
					return nil, err
				}
				n = p.Analysis.Plan.Replaced()
				return p.Patch()
			}})
		if err != nil {
			t.Errorf("forced %t: %v", force, err)
			continue
		}
		defer s.Close()
		if n > replaced {
			patched[fmt.Sprintf("forced %t, %d replaced", force, n)], replaced = s, n
		}
	}
	sound := slices.ContainsFunc(plain.Inputs(), func(in ort.ValueInfo) bool { return in.Name == "input_values" })
	for i, sh := range at {
		if sound { // convolutions make a position of hundreds of samples
			sh.read = 900 + 400*sh.read
		}
		fed, err := inputs.Make(l, path,
			inputs.Options{Seed: uint64(i + 1), LooseDims: true,
				Dims: map[string]int64{"height": 32, "width": 32, "samples": 40 + 20*sh.tokens},
				Lengths: map[roles.Length]int64{roles.Batch: sh.rows, roles.New: sh.tokens, roles.Cached: sh.past,
					roles.Encoder: sh.read}})
		if err != nil {
			t.Errorf("%s: %v", sh, err)
			continue
		}
		pad(t, l, fed, sh)
		want, err := plain.Run(t.Context(), fed.Values)
		if err != nil {
			t.Logf("%s: ONNX Runtime gives no answer: %.300v", sh, err)
			fed.Close()
			continue
		}
		ran++
		for how, s := range patched {
			got, err := s.Run(t.Context(), fed.Values)
			if err != nil {
				t.Errorf("%s, %s: %v", sh, how, err)
				continue
			}
			for k, o := range s.Outputs() {
				must.Equal(t, differ(t, want[k], got[k]), "", sh, how, o.Name)
			}
			closeAll(got)
		}
		closeAll(want)
		fed.Close()
	}
	return ran
}

// tolerance is the share of an output's largest element by which answers may differ that are outside of the usual
// tolerance: weights of the small models are many times those of trained ones, which makes scores so far apart that
// one position in hundreds turns on what is rounded. Of small/marian/decoder_model ONNX Runtime's own answers are up
// to 3e-3 of the largest off those in float64, at 300 random inputs. A key too many is a hundred times that.
const tolerance = 5e-4

// differ says how an answer is another than ONNX Runtime's; "" where it is the same. What ONNX Runtime has no number
// for does not count.
func differ(t *testing.T, want, got *ort.Value) string {
	t.Helper()
	x := comparison.CompareValues("", want, got, 0, 0)
	if x.OK || want.Element() != ort.Float32 || !slices.Equal(want.Shape(), got.Shape()) {
		if !x.OK {
			return fmt.Sprintf("%s %d of %v differ", x.Problem, x.Disagree, x.Shape)
		}
		return ""
	}
	p := must.Value(ort.Data[float32](want))(t)
	q := must.Value(ort.Data[float32](got))(t)
	largest, most := 0.0, 0.0
	for i := range p {
		switch p, q := float64(p[i]), float64(q[i]); {
		case p == q || math.IsNaN(p):
		case math.IsInf(p, 0) || math.IsInf(q, 0) || math.IsNaN(q):
			return fmt.Sprintf("%g instead of %g", q, p)
		default:
			largest, most = max(largest, math.Abs(p)), max(most, math.Abs(p-q))
		}
	}
	if most > tolerance*largest {
		return fmt.Sprintf("off by up to %.3g, where elements are up to %.3g", most, largest)
	}
	return ""
}

func closeAll(values []*ort.Value) {
	for _, v := range values {
		v.Close()
	}
}

// pad hides positions of all rows of a mask but the first, more in each, and lets the positions of what is padded on
// the left begin after its padding, as Hugging Face's generate does.
func pad(t *testing.T, l *ort.Library, fed *inputs.Batch, sh shape) {
	t.Helper()
	set := func(name string, shape, data []int64) {
		v := must.Value(ort.NewTensor(l, shape, data))(t)
		fed.Values[name].Close()
		fed.Values[name] = v
	}
	var seen [][]int64 // of the decoder's mask, by row: how many keys are before each
	for _, in := range fed.Infos {
		if in.From != "mask" || len(in.Shape) != 2 || in.Type != "int64" {
			continue
		}
		mask := make([]int64, in.Shape[0]*in.Shape[1])
		for row := range in.Shape[0] {
			hidden, count := row*in.Shape[1]/(in.Shape[0]+1), int64(0)
			counts := make([]int64, in.Shape[1])
			for i := range in.Shape[1] {
				if sh.padding == "none" || sh.padding == "left" && i >= hidden || sh.padding == "right" && i < in.Shape[1]-hidden {
					mask[row*in.Shape[1]+i] = 1
					count++
				}
				counts[i] = max(count-1, 0)
			}
			if in.Name == "attention_mask" {
				seen = append(seen, counts)
			}
		}
		set(in.Name, in.Shape, mask)
	}
	for _, in := range fed.Infos {
		if in.From != "positions" || len(in.Shape) != 2 || in.Type != "int64" || int64(len(seen)) != in.Shape[0] ||
			sh.padding != "left" {
			continue
		}
		positions := make([]int64, 0, in.Shape[0]*in.Shape[1])
		for _, counts := range seen {
			positions = append(positions, counts[max(0, int64(len(counts))-in.Shape[1]):]...)
		}
		if int64(len(positions)) == in.Shape[0]*in.Shape[1] {
			set(in.Name, in.Shape, positions)
		}
	}
}
