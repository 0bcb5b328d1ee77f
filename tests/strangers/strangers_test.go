// Package strangers holds that a plugin which the host has never heard of takes the place of one of graft's own that
// provides a capability: planned, tuned, compared and used, with what its manifest says alone.
package strangers

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/measure/comparison"
	"github.com/opgraft/graft/host/measure/comparison/generations"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plan/tune"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// built is where make plugins puts graft's own.
const built = "../../build/plugins"

// stranger is a plugin in a temporary folder that does what one of graft's own does: its library and manifest, in
// which the names of the plugin and of its operators are others. New names are as long as those that they replace, so
// that everything stays in its place. edits change the manifest too.
func stranger(t *testing.T, own string, names, edits []string) (folder string) {
	t.Helper()
	folder = filepath.Join(t.TempDir(), "stranger")
	if err := os.CopyFS(folder, os.DirFS(filepath.Join(built, own))); err != nil {
		t.Fatalf("%v: run make plugins", err)
	}
	files := must.Value(filepath.Glob(filepath.Join(folder, "*")))(t)
	for _, path := range files {
		data := must.Value(os.ReadFile(path))(t)
		library := strings.HasSuffix(path, ".so")
		for i := 0; i < len(names); i += 2 {
			if len(names[i]) != len(names[i+1]) || !bytes.Contains(data, []byte(names[i])) {
				t.Fatalf("%s: needed %s, and a name as long as %s", path, names[i], names[i+1])
			}
			data = bytes.ReplaceAll(data, []byte(names[i]), []byte(names[i+1]))
		}
		for i := 0; !library && i < len(edits); i += 2 {
			if !bytes.Contains(data, []byte(edits[i])) {
				t.Fatalf("%s: needed %q", path, edits[i])
			}
			data = bytes.ReplaceAll(data, []byte(edits[i]), []byte(edits[i+1]))
		}
		must.Succeed(t, os.WriteFile(path, data, 0o600))
	}
	return folder
}

// beside loads a stranger's plugin after graft's own.
func beside(t *testing.T, folder string) *loaded.Set {
	t.Helper()
	folders := must.Value(filepath.Glob(filepath.Join(built, "*")))(t)
	folders = slices.DeleteFunc(append(folders, folder), func(f string) bool {
		_, err := os.Stat(filepath.Join(f, "plugin.yaml"))
		return err != nil
	})
	t.Setenv("GRAFT_PLUGIN_PATH", "")
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	set, err := loaded.Load(folders, true)
	if err != nil || len(set.Plugins) != len(folders) {
		t.Fatalf("%v, %v: run make plugins", err, set.Refused)
	}
	return set
}

func library(t *testing.T) *ort.Library {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	return l
}

// taken holds that one plugin has the other's place.
func taken(t *testing.T, what string, plugins []string, name, own string) {
	t.Helper()
	if !slices.Contains(plugins, name) || slices.Contains(plugins, own) {
		t.Errorf("%s: found %q, needed %s and not %s", what, plugins, name, own)
	}
}

// planned are the plugins of a session's plan.
func planned(t *testing.T, set *loaded.Set, path string, o plan.Options) []string {
	t.Helper()
	m := must.Value(model.Open(path))(t)
	defer m.Close()
	a := must.Value(patch.Analyse(t.Context(), m, set.Manifests(), set.Plan(o)))(t)
	return a.Plugins()
}

// compared compares a model's answers without operators with those of all plugins.
func compared(t *testing.T, l *ort.Library, set *loaded.Set, path string, o comparison.Options) []string {
	t.Helper()
	o.A, o.B, o.Inputs.Seed, o.Inputs.LooseDims = "none", "auto", 1, true
	r := must.Value(comparison.Answers(t.Context(), l, set, path, o))(t)
	for _, out := range r.Parity.Outputs {
		if !out.OK {
			t.Errorf("%s %v: %s, %d differ, at most by %g", out.Name, out.Shape, out.Problem, out.Disagree, out.MaxAbsolute)
		}
	}
	return r.B.Plugins
}

// written is the file of a model from text.
func written(t *testing.T, text string) string {
	t.Helper()
	b := must.Value(proto.Marshal(blockstest.Proto(t, text)))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, os.WriteFile(path, b, 0o600))
	return path
}

// TestLinearLayers: a cheaper plugin has the place of packed-linear, whose weights it lays out in float32 and integers.
func TestLinearLayers(t *testing.T) {
	const own, name = "packed-linear", "walled-linear"
	l := library(t)
	set := beside(t, stranger(t, own, []string{own, name, "PackedLinear", "WalledLinear", "PackPanels", "WallPanels"},
		[]string{"cost_in_panels: {bandwidth: 0.95, flops: 0.94,", "cost_in_panels: {bandwidth: 0.95, flops: 0.95,"}))
	dir := filepath.Join(t.TempDir(), "gpt2")
	must.Succeed(t, models.Small("gpt2", dir))
	path := filepath.Join(dir, "model.onnx")
	taken(t, "planned", planned(t, set, path, plan.Options{Force: true}), name, own)
	taken(t, "compared", compared(t, l, set, path, comparison.Options{Force: true}), name, own)
	t.Run("tuned", func(t *testing.T) { tuned(t, set, dir, name, own) })
	for _, weights := range []string{"float32", "int8", "int4"} {
		t.Run("used with "+weights, func(t *testing.T) {
			w := must.Value(prepare.ParseWeights(weights))(t)
			g, err := decode.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20, Weights: w})
			must.Succeed(t, err)
			defer g.Close()
			taken(t, "used", g.Plugins(), name, own)
			if got := g.Weights().Quantized(); got != (weights != "float32") {
				t.Errorf("%s: found %+v", weights, g.Weights())
			}
		})
	}
	r, err := generations.Compare(t.Context(), l, set, dir, generations.Options{A: "none", B: "keys_values", Batch: 2,
		PromptLength: 10, Seed: 1, Rounds: 1, CacheBytes: 64 << 20, Search: []byte(`{"max_new_tokens": 12}`)})
	must.Succeed(t, err)
	if r.Equal != r.Sequences || r.Sequences == 0 {
		t.Errorf("%d of %d sequences are equal", r.Equal, r.Sequences)
	}
}

// tuned: keys and values are made by the stranger's operator while strategies are measured.
func tuned(t *testing.T, set *loaded.Set, dir, name, own string) {
	m := must.Value(prepare.Open(t.Context(), dir))(t)
	defer m.Close()
	layers := must.Value(m.Layers())(t)
	r := plan.Range{Keys: [2]int64{16, 16}, Own: [2]int64{0, 4}, Beams: [2]int64{1, 1}, Batch: [2]int64{1, 1}}
	table, err := tune.Measure(t.Context(), layers[0], tune.Options{Plugins: set.Plugins, Range: r, Repeats: 1})
	must.Succeed(t, err)
	var plugins []string
	for p := range table.Machine.Plugins {
		plugins = append(plugins, p)
	}
	taken(t, "tuned", plugins, name, own)
	must.Equal(t, len(table.Projection), table.Axes.Size())
}

// TestIntegerLayers: a cheaper plugin has the place of quantized-linear.
func TestIntegerLayers(t *testing.T) {
	const own, name = "quantized-linear", "strangest-linear"
	l := library(t)
	set := beside(t, stranger(t, own, []string{own, name, "QuantizedLinear", "StrangestLinear", "NodewiseAttention",
		"StrangerAttention"}, []string{"flops: 0.9,", "flops: 0.95,", "cpu_vnni: true, ", ""}))
	path := written(t, `
	in x f32[b, n, 16]
	out y f32[b, n, 16]
	const w i8[16, 16]
	const wz i8[16]
	const ws f32[16]
	const bias f32[16]
	xq, xs, xz = DynamicQuantizeLinear(x)
	i = MatMulInteger(xq, w, xz, wz)
	f = Cast(i) to=1
	s = Mul(xs, ws)
	m = Mul(f, s)
	y = Add(bias, m)`)
	o := comparison.Options{Force: true, QuantizationNoise: true,
		Inputs: inputs.Options{Dims: map[string]int64{"b": 3, "n": 7}}}
	taken(t, "planned", planned(t, set, path, plan.Options{Force: true, QuantizationNoise: true}), name, own)
	taken(t, "compared and used", compared(t, l, set, path, o), name, own)
}

// TestPadding: a cheaper plugin has the place of remove-padding.
func TestPadding(t *testing.T) {
	const own, name = "remove-padding", "forget-padding"
	l := library(t)
	set := beside(t, stranger(t, own, []string{own, name, "RemovePadding", "ForgetPadding", "PackedAttention",
		"ForgotAttention", "RestorePadding", "RecoverPadding"},
		[]string{"cost: {bandwidth: 0.5, flops: 0.5,", "cost: {bandwidth: 0.5, flops: 0.6,"}))
	path := must.Value(filepath.Abs("../../models/encoders/embedder/onnx/model.onnx"))(t)
	for _, padding := range []plan.Padding{plan.ExactPadding, plan.IgnorePadding} {
		o := plan.Options{Force: true, QuantizationNoise: true, Padding: padding}
		taken(t, "planned", planned(t, set, path, o), name, own)
		taken(t, "compared and used", compared(t, l, set, path, comparison.Options{Force: true, QuantizationNoise: true,
			Padding: padding, Inputs: inputs.Options{
				Dims: map[string]int64{"batch_size": 3, "sequence_length": 17}}}), name, own)
	}
}
