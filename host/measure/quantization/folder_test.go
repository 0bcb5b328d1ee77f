package quantization_test

import (
	"context"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/measure/quantization"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

func small(t testing.TB, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	must.Succeed(t, models.Small(name, dir))
	return dir
}

// quantise writes a folder to a new one.
func quantise(t testing.TB, dir, weights string) (to string, r *quantization.Report) {
	t.Helper()
	_, set := open(t)
	to = filepath.Join(t.TempDir(), "deep", "quantised")
	r = must.Value(quantization.Folder(t.Context(), dir, to,
		quantization.Options{Plugins: set.Plugins, Weights: weightsOf(t, weights)}))(t)
	return to, r
}

// names are the files below a folder.
func names(t testing.TB, folder string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			name, _ := filepath.Rel(folder, path)
			list = append(list, name)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return list
}

// logits are those of a text that ONNX Runtime gives with a folder's graphs as they are.
func logits(t *testing.T, dir string) []float32 {
	t.Helper()
	l, _ := open(t)
	g := must.Value(exported.Open(t.Context(), dir, decode.Options{Library: l, ReferenceSelector: true, Threads: 1}))(t)
	defer g.Close()
	in := &decode.Input{Tokens: []int32{5, 17, 9, 44, 61, 8, 70}, Prompt: []int32{6, 30, 12, 50}}
	if shape := g.Config().FeatureShape(); shape != nil {
		in.Features = &engine.Features{Values: models.Normal(3, "features", int(shape[1]*shape[2])), Shape: shape}
	}
	f := must.Value(g.Force(t.Context(), in))(t)
	defer f.Close()
	n := len(in.Tokens)
	if g.Search().IsEncoderDecoder {
		n = len(in.Prompt)
	}
	rows := must.Value(f.Next(t.Context(), n))(t)
	return slices.Clone(rows)
}

// spread is how far logits are apart, as a share of how much those that are wanted differ from each other.
func spread(got, want []float32) float64 {
	mean := 0.0
	for _, x := range want {
		mean += float64(x) / float64(len(want))
	}
	var off, all float64
	for i, x := range want {
		off += (float64(got[i]) - float64(x)) * (float64(got[i]) - float64(x))
		all += (float64(x) - mean) * (float64(x) - mean)
	}
	return math.Sqrt(off / all)
}

// floatTwin copies a folder, with the numbers that the integers of another stand for in the place of its weights.
func floatTwin(t *testing.T, dir, quantised string) string {
	t.Helper()
	to := t.TempDir()
	for _, name := range names(t, dir) {
		data := must.Value(os.ReadFile(filepath.Join(dir, name)))(t)
		if filepath.Ext(name) == ".onnx" {
			data = twin(t, data, filepath.Join(quantised, name))
		}
		must.Succeed(t, os.WriteFile(filepath.Join(to, name), data, 0o600))
	}
	return to
}

func twin(t *testing.T, data []byte, path string) []byte {
	t.Helper()
	p := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(data, p))
	m := must.Value(model.Open(path))(t)
	defer m.Close()
	list, find := quantisedNodes(m)
	numbers := map[string][]float32{}
	for _, n := range list {
		name, _ := strings.CutSuffix(n.Input[1], "_quantized")
		w := dequantised(t, m, n, find)
		for _, initializer := range p.Graph.Initializer {
			if initializer.GetName() != name {
				continue
			}
			before := floats(initializer.RawData)
			depth, columns := len(w)/int(find(n.Input[1]).Dims[0]), int(find(n.Input[1]).Dims[0])
			turned := make([]float32, len(w))
			for k := range depth {
				for c := range columns {
					turned[c*depth+k] = w[k*columns+c]
				}
			}
			if apart(turned, before) < apart(w, before) { // a square one may lie either way
				w = turned
			}
			numbers[name] = w
		}
	}
	if len(numbers) == 0 {
		t.Fatalf("%s has no integers", path)
	}
	// A table of embeddings that is the last layer's weight too stays as it is: the layer reads a copy.
	reads := map[string]bool{}
	for _, n := range p.Graph.Node {
		if n.GetOpType() == "Gather" {
			reads[n.Input[0]] = true
		}
	}
	for _, initializer := range slices.Clone(p.Graph.Initializer) {
		w := numbers[initializer.GetName()]
		if w == nil {
			continue
		}
		if !reads[initializer.GetName()] {
			initializer.RawData = raw(w)
			continue
		}
		other := initializer.GetName() + " rounded"
		p.Graph.Initializer = append(p.Graph.Initializer, constant(other, w, initializer.Dims...))
		renameReads(p.Graph, initializer.GetName(), other)
	}
	out := must.Value(proto.Marshal(p))(t)
	return out
}

// renameReads has all nodes but those that look rows up read another value.
func renameReads(g *onnx.Graph, from, to string) {
	for _, n := range g.Node {
		for i, in := range n.Input {
			if in == from && n.GetOpType() != "Gather" {
				n.Input[i] = to
			}
		}
		for _, a := range n.Attribute {
			if a.G != nil {
				renameReads(a.G, from, to)
			}
		}
	}
}

// TestLogitsOfAnyName: the layer that makes the logits has their type, whatever the output is called.
func TestLogitsOfAnyName(t *testing.T) {
	for _, name := range []string{"bart-merged", "qwen2-exporter", "llama"} {
		dir := small(t, name)
		_, want := quantise(t, dir, "int4,activations=float32")
		renamed := 0
		for _, path := range must.Value(filepath.Glob(filepath.Join(dir, "*.onnx")))(t) {
			p := &onnx.Model{}
			must.Succeed(t, proto.Unmarshal([]byte(read(t, path)), p))
			for _, v := range p.Graph.Output {
				if v.GetName() == "logits" {
					*v.Name = "scores"
					renamed++
				}
			}
			for _, n := range p.Graph.Node {
				for i, out := range n.Output {
					if out == "logits" {
						n.Output[i] = "scores"
					}
				}
			}
			must.Succeed(t, os.WriteFile(path, must.Value(proto.Marshal(p))(t), 0o600))
		}
		if renamed == 0 {
			t.Fatalf("%s has no logits", name)
		}
		_, got := quantise(t, dir, "int4,activations=float32")
		for i, g := range got.Graphs {
			must.Equal(t, g.Layers, want.Graphs[i].Layers, name, g.File)
		}
	}
}

// TestQuantizedFolders: plain ONNX Runtime opens a folder that was written, and gives the logits of the model in
// float32 whose weights are the numbers that the integers stand for; with activations as they are to float32's
// rounding. Beside the graphs all is there that was there.
func TestQuantizedFolders(t *testing.T) {
	for i, c := range []struct {
		name, weights string
		types         []string // of layers
	}{
		{"gpt2", "int8,activations=float32", []string{"int8"}},
		{"gpt2", "int4,logits=int4,group=64", []string{"int4"}},
		{"gpt2", "int4,logits=float32,activations=float32", []string{"int4"}},
		{"bart-merged", "int4,activations=float32", []string{"int4", "int8"}},
		{"bart", "int8", []string{"int8"}},
		{"llama", "int4,activations=float32", []string{"int4", "int8"}},
		{"t5-tied", "int8,activations=float32", []string{"int8"}},
		{"whisper", "int8,group=128,activations=float32", []string{"int8"}},
		{"gpt2-constant-scale", "int8,activations=float32", []string{"int8"}},
		{"gpt2-merged", "int8,activations=float32", []string{"int8"}},
		{"gpt2", "int8,zero-points=true,activations=float32", []string{"int8"}},
		{"bart-merged", "int4,zero-points=true,activations=float32", []string{"int4", "int8"}},
	} {
		if testing.Short() && i != 1 && i != 3 && i != 11 {
			continue
		}
		t.Run(c.name+" "+c.weights, func(t *testing.T) {
			dir := small(t, c.name)
			write(t, filepath.Join(dir, "model.safetensors"), "weights")
			write(t, filepath.Join(dir, "1_Pooling", "config.json"), "{}")
			write(t, filepath.Join(dir, ".cache", "junk"), "junk")
			want := slices.DeleteFunc(names(t, dir),
				func(name string) bool { return name == "model.safetensors" || strings.HasPrefix(name, ".cache") })
			to, r := quantise(t, dir, c.weights)
			must.Equal(t, names(t, to), want)
			if !slices.Equal(r.Left, []string{"model.safetensors"}) || len(r.Copied)+len(r.Graphs) != len(want) {
				t.Errorf("copied are %v, left %v", r.Copied, r.Left)
			}
			if above := names(t, filepath.Dir(to)); len(above) != len(want) {
				t.Errorf("beside it lie %v", above)
			}
			if r.BytesAfter >= r.BytesBefore || r.BytesAfter <= 0 {
				t.Errorf("%d bytes of %d", r.BytesAfter, r.BytesBefore)
			}
			for _, g := range r.Graphs {
				info, err := os.Stat(filepath.Join(to, g.File))
				must.Succeed(t, err, g.File)
				must.Equal(t, info.Size(), g.BytesAfter, g.File)
			}
			var types []string
			for _, g := range r.Graphs {
				for _, l := range g.Linear {
					types = append(types, l.Type)
				}
			}
			if slices.Sort(types); !slices.Equal(slices.Compact(types), c.types) {
				t.Errorf("layers have the types %v, want %v", types, c.types)
			}
			os.RemoveAll(filepath.Join(dir, "1_Pooling"))
			os.RemoveAll(filepath.Join(dir, ".cache"))
			got, reference, before := logits(t, to), logits(t, floatTwin(t, dir, to)), logits(t, dir)
			bound := 0.05
			if strings.Contains(c.weights, "activations=float32") {
				bound = 3e-5
			}
			off, lost := spread(got, reference), spread(got, before)
			t.Logf("%.2g off what the integers stand for, %.2g off the model as exported", off, lost)
			if !(off <= bound) {
				t.Errorf("logits are %.3g of their spread off what the integers stand for, want at most %g", off, bound)
			}
			if !(lost > 0 && lost < 1.5) {
				t.Errorf("logits are %.3g of their spread off the exported model's", lost)
			}
		})
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must.Succeed(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o644))
}

// TestExternalData: data beside a graph belong to it: they are read, and not copied; neither are links to them. Links
// to files are followed.
func TestExternalData(t *testing.T) {
	dir := small(t, "gpt2")
	path := filepath.Join(dir, "model.onnx")
	m := must.Value(model.Open(path))(t)
	beside := filepath.Join(dir, "split.onnx")
	must.Succeed(t, m.Write(t.Context(), m.Proto(), beside, model.WriteOptions{InlineLimit: 1 << 12}))
	m.Close()
	must.Succeed(t, os.Remove(path))
	must.Succeed(t, os.Rename(filepath.Join(dir, "config.json"), filepath.Join(t.TempDir(), "blob")))
	blob := filepath.Join(t.TempDir(), "blob")
	write(t, blob, `{"vocab_size": 100}`)
	must.Succeed(t, os.Symlink(blob, filepath.Join(dir, "config.json")))
	data := must.Value(os.Stat(beside + ".data"))(t)
	to, r := quantise(t, dir, "int8")
	if list := names(t, to); !slices.Contains(list, "split.onnx") || slices.Contains(list, "split.onnx.data") ||
		!slices.Contains(list, "config.json") {
		t.Errorf("the folder holds %v", list)
	}
	if r.BytesBefore <= data.Size() {
		t.Errorf("%d bytes before, the data alone are %d", r.BytesBefore, data.Size())
	}
	if text, err := os.ReadFile(filepath.Join(to, "config.json")); err != nil || string(text) != `{"vocab_size": 100}` {
		t.Errorf("config.json is %q, %v", text, err)
	}
	if info, err := os.Lstat(filepath.Join(to, "config.json")); err != nil || !info.Mode().IsRegular() {
		t.Errorf("config.json is no file of its own: %v", err)
	}
}

// TestWhatCannotBeWritten: each is one error, and nothing is left.
func TestWhatCannotBeWritten(t *testing.T) {
	_, set := open(t)
	dir := small(t, "gpt2")
	full, empty, damaged, integers := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	write(t, filepath.Join(full, "precious"), "")
	write(t, filepath.Join(damaged, "model.onnx"), "no model")
	quantised, _ := quantise(t, dir, "int8,logits=int8")
	must.Succeed(t, os.CopyFS(filepath.Join(integers, "model"), os.DirFS(quantised)))
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	out := filepath.Join(t.TempDir(), "out")
	options := quantization.Options{Plugins: set.Plugins, Weights: weightsOf(t, "int8")}
	for _, c := range []struct {
		name string
		call func() error
		says []string
	}{
		{"a folder with something in it", func() error {
			_, err := quantization.Folder(t.Context(), dir, full, options)
			return err
		}, []string{full, "found a folder that holds precious", "new or empty"}},
		{"a file where the folder is to be", func() error {
			_, err := quantization.Folder(t.Context(), dir, filepath.Join(full, "precious"), options)
			return err
		}, []string{"cannot write a model folder there"}},
		{"no graphs", func() error { _, err := quantization.Folder(t.Context(), empty, out, options); return err },
			[]string{empty, "found no .onnx in it", "optimum-cli export onnx"}},
		{"no folder", func() error {
			_, err := quantization.Folder(t.Context(), filepath.Join(empty, "nowhere"), out, options)
			return err
		}, []string{"nowhere", "cannot read the folder"}},
		{"no model", func() error { _, err := quantization.Folder(t.Context(), damaged, out, options); return err },
			[]string{filepath.Join(damaged, "model.onnx")}},
		{"integers already", func() error {
			_, err := quantization.Folder(t.Context(), filepath.Join(integers, "model"), out, options)
			return err
		}, []string{"found no weights that could be quantised; most are", "tables of which rows are looked up",
			"in float32"}},
		{"its own file", func() error {
			path := filepath.Join(dir, "model.onnx")
			_, err := quantization.File(t.Context(), path, path, options)
			return err
		}, []string{"refusing to overwrite"}},
		{"an interrupt", func() error { _, err := quantization.Folder(cancelled, dir, out, options); return err },
			[]string{"context canceled"}},
		{"without the plugin", func() error {
			_, err := quantization.Folder(t.Context(), dir, out, quantization.Options{Weights: options.Weights})
			return err
		}, []string{"pack-panels/1"}},
	} {
		before := len(names(t, dir))
		err := c.call()
		for _, says := range c.says {
			must.Fail(t, err, says)
		}
		if found, err := os.ReadDir(filepath.Dir(out)); err != nil || len(found) > 0 {
			t.Errorf("%s: %d files are left, %v", c.name, len(found), err)
		}
		must.Equal(t, len(names(t, dir)), before, c.name)
	}
	for text, says := range map[string]string{"bf16": "no kernel of ONNX Runtime on CPUs multiplies with bf16",
		"int8,logits=bf16": "bf16", "float32": "quantises nothing", "float32,logits=int8": "", "int4": ""} {
		if err := quantization.Check(weightsOf(t, text)); (err == nil) != (says == "") ||
			err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

// TestReasons: what stays as it was is in the report, with its reason, and every byte once.
func TestReasons(t *testing.T) {
	_, r := quantise(t, small(t, "gpt2"), "int8,logits=float32")
	g := r.Graphs[0]
	found := map[string]bool{}
	for _, f := range g.Float32 {
		if found[f.Reason] || f.Bytes <= 0 || f.Tensors <= 0 {
			t.Errorf("%+v", f)
		}
		found[f.Reason] = true
	}
	for _, why := range []string{"tables of which rows are looked up, as those of embeddings",
		"biases, scales and other constants"} {
		if !found[why] {
			t.Errorf("%v does not say %q", g.Float32, why)
		}
	}
	var bytes int64
	for _, l := range g.Layers {
		if bytes += l.Bytes; !(l.Error > 0 && l.Error < 0.02) || l.Type != "int8" || l.Bytes >= l.Float32Bytes {
			t.Errorf("%+v", l)
		}
	}
	if len(g.Linear) != 1 || g.Linear[0].Bytes != bytes || g.Linear[0].Matrices != len(g.Layers) {
		t.Errorf("%+v does not add up to %d bytes of %d layers", g.Linear, bytes, len(g.Layers))
	}
}
