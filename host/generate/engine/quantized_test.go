package engine_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/engine"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/signature"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// quantised opens a folder with weights in the words of prepare.ParseWeights.
func quantised(t *testing.T, dir, weights string, cache *fold.Cache,
	change ...func(*decode.Options)) (*decode.Generator, error) {
	t.Helper()
	l, set := open(t)
	w := must.Value(prepare.ParseWeights(weights))(t)
	o := decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20, Weights: w, Quantized: cache,
		Attention: prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues}}
	for _, f := range change {
		f(&o)
	}
	return decode.Open(t.Context(), dir, o)
}

// scores are the logits after a prompt and after each of some tokens.
func scores(t *testing.T, g *decode.Generator, seed uint64) [][]float32 {
	t.Helper()
	e, r := g.Engine(), rand.New(rand.NewPCG(seed, 5))
	tokens := func(n int) []int64 {
		list := make([]int64, n)
		for i := range list {
			list[i] = int64(5 + r.IntN(100))
		}
		return list
	}
	feed := engine.Feed{Sequence: e.NewSequence(), Tokens: tokens(7), Prompt: true}
	defer func() { feed.Sequence.Release() }()
	if e.HasEncoder() {
		in := engine.Features{Tokens: tokens(11)}
		if shape := g.Config().FeatureShape(); shape != nil {
			in = engine.Features{Values: models.Normal(seed, "features", int(shape[1]*shape[2])), Shape: shape}
		}
		var err error
		if feed.Cross, err = e.Encode(t.Context(), in, 1); err != nil {
			t.Fatal(err)
		}
		defer feed.Cross.Release()
	}
	var list [][]float32
	for range 5 {
		s := must.Value(e.Step(t.Context(), []engine.Feed{feed}))(t)
		list = append(list, slices.Clone(s.Data))
		feed.Tokens, feed.Prompt = tokens(1), false
	}
	return list
}

// distance is how far lists are apart, the root of the mean square over that of the list that is wanted without its
// mean: a share of how much logits differ from each other. equal says for how many rows the greatest is at the same
// place.
func distance(got, want [][]float32) (share float64, equal int) {
	var off, spread float64
	for i := range want {
		mean, greatest, found := 0.0, 0, 0
		for _, x := range want[i] {
			mean += float64(x) / float64(len(want[i]))
		}
		for k, x := range want[i] {
			off += (float64(got[i][k]) - float64(x)) * (float64(got[i][k]) - float64(x))
			spread += (float64(x) - mean) * (float64(x) - mean)
			if x > want[i][greatest] {
				greatest = k
			}
			if got[i][k] > got[i][found] {
				found = k
			}
		}
		if found == greatest {
			equal++
		}
	}
	return math.Sqrt(off / spread), equal
}

// TestQuantizedAgainstDequantized: an engine of quantised weights computes what the engine computes of the same model
// whose weights are, in float32, the numbers that the integers stand for. With activations as they are the two differ
// by rounding of float32 alone. How much a model makes of an error differs, so what weights of eight bits cost it is
// the measure for what activations of eight bits and weights of four cost it; activations of sixteen bits cost it
// next to nothing beside that.
func TestQuantizedAgainstDequantized(t *testing.T) {
	l, set := open(t)
	cache := fold.At(t.TempDir(), nil)
	for _, c := range []struct {
		model   string
		loss    float64 // bounds what weights of eight bits move logits by, as a share of their spread
		equal   int     // rows of 5 whose best token these leave, at least
		weights []string
	}{
		{"gpt2", 0.03, 4, []string{"int8", "int4,logits=int4", "int4,group=128", "int8,logits=float32", "bf16",
			"bf16,logits=int4", "int8,zero-points=true"}},
		{"bart", 0.4, 1, []string{"int8", "int4", "int4,zero-points=true,group=64"}},
		{"llama", 0.06, 4, []string{"int8", "int4,group=64", "int4,logits=int4,zero-points=true", "bf16"}},
		{"t5", 0.2, 3, []string{"int8", "int4"}},
		{"whisper", 0.8, 0, []string{"int8", "int4"}},
	} {
		if testing.Short() {
			if c.weights = c.weights[:1]; c.model != "gpt2" && c.model != "bart" {
				continue
			}
		}
		dir := t.TempDir()
		must.Succeed(t, models.Small(c.model, dir))
		exported := must.Value(quantised(t, dir, "float32", cache))(t)
		asExported := scores(t, exported, 3)
		exported.Close()
		measure := math.NaN()
		for _, weights := range c.weights {
			w := must.Value(prepare.ParseWeights(weights))(t)
			like := t.TempDir()
			dequantize(t, dir, like, engine.Options{Library: l, Plugins: set, Weights: w})
			reference := must.Value(quantised(t, like, "float32", cache))(t)
			want := scores(t, reference, 3)
			reference.Close()
			for _, activations := range []string{"float32", "int16", "int8"} {
				what := c.model + ", " + weights + ", activations of " + activations
				said := weights + ",activations=" + activations
				if !w.Integers() { // multiplied as it comes
					if said = weights; activations != "float32" {
						continue
					}
				}
				g := must.Value(quantised(t, dir, said, cache))(t)
				got := scores(t, g, 3)
				g.Close()
				off, _ := distance(got, want)
				lost, equal := distance(got, asExported)
				t.Logf("%s: %.2g of the reference's spread off it, %.2g off the exported model, %d of 5 best tokens equal", what,
					off, lost, equal)
				if math.IsNaN(measure) {
					if measure = lost; !(lost > 0 && lost <= c.loss) || equal < c.equal {
						t.Errorf("%s: logits are %.3g of their spread off the exported model's, with %d of 5 best tokens; want at "+
							"most %g and at least %d", what, lost, equal, c.loss, c.equal)
					}
				}
				bound, most := 4*measure, 40*measure
				switch activations {
				case "float32":
					bound = 2e-5
				case "int16":
					bound = 4 * measure / 50
				}
				if strings.HasPrefix(weights, "int8") {
					most = 5 * measure
				}
				if weights == "bf16" {
					most = measure
				}
				if !(off <= bound) {
					t.Errorf("%s: logits are %.3g of their spread off what the integers stand for, want at most %.3g", what, off,
						bound)
				}
				if !(lost <= most) {
					t.Errorf("%s: logits are %.3g of their spread off the exported model's, want at most %.3g", what, lost, most)
				}
			}
		}
	}
}

// dequantize copies a model folder with the numbers in the place of weights that their integers stand for.
func dequantize(t *testing.T, dir, to string, o engine.Options) {
	t.Helper()
	g, err := decode.Prepare(t.Context(), dir,
		decode.Options{Library: o.Library, Plugins: o.Plugins,
			Attention: prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues}})
	must.Succeed(t, err)
	defer g.Close()
	numbers := map[string]map[string][]float32{} // by file and name
	for _, part := range []struct {
		path  string
		graph *prepare.Graph
	}{{g.Model.Files.Decoder, g.Decoder}, {g.Model.Files.First, g.Filler}, {g.Model.Files.Encoder, g.Encoder}} {
		if part.graph == nil {
			continue
		}
		if numbers[filepath.Base(part.path)], err = engine.Dequantized(part.graph, o); err != nil {
			t.Fatal(err)
		}
	}
	files := must.Value(os.ReadDir(dir))(t)
	for _, f := range files {
		data := must.Value(os.ReadFile(filepath.Join(dir, f.Name())))(t)
		if list := numbers[f.Name()]; len(list) > 0 {
			data = replaceWeights(t, data, list)
		}
		must.Succeed(t, os.WriteFile(filepath.Join(to, f.Name()), data, 0o600))
	}
}

// replaceWeights replaces initializers of a model by name.
func replaceWeights(t *testing.T, data []byte, list map[string][]float32) []byte {
	t.Helper()
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(data, m))
	replaced := 0
	for _, w := range m.Graph.Initializer {
		numbers := list[w.GetName()]
		if numbers == nil {
			continue
		}
		if len(w.RawData) != 4*len(numbers) {
			t.Fatalf("%s has %d bytes, and %d numbers are to replace them", w.GetName(), len(w.RawData), len(numbers))
		}
		for i, x := range numbers {
			binary.LittleEndian.PutUint32(w.RawData[4*i:], math.Float32bits(x))
		}
		replaced++
	}
	if replaced != len(list) {
		t.Fatalf("%d of %d weights are in the file", replaced, len(list))
	}
	data = must.Value(proto.Marshal(m))(t)
	return data
}

// TestWeightsReport: every byte of a model's weights is in the report, once, under what it became.
func TestWeightsReport(t *testing.T) {
	cache := fold.At(t.TempDir(), nil)
	for _, c := range []struct {
		model, weights string
		types          []string
	}{
		{"gpt2", "int8", []string{"int8"}},
		{"gpt2", "int4", []string{"int4", "int8"}},
		{"gpt2", "int8,logits=float32", []string{"float32", "int8"}},
		{"gpt2", "float32,logits=int8", []string{"float32", "int8"}},
		{"gpt2", "bf16", []string{"bf16"}},
		{"gpt2", "bf16,logits=int8", []string{"bf16", "int8"}},
		{"bart", "int4", []string{"int4", "int8"}},
		{"bart", "bf16,logits=float32", []string{"bf16", "float32"}},
		{"t5", "int8", []string{"int8"}},
		{"whisper", "int8", []string{"int8"}},
		{"llama", "int4,logits=int4", []string{"int4"}},
	} {
		dir := t.TempDir()
		must.Succeed(t, models.Small(c.model, dir))
		plain := must.Value(quantised(t, dir, "float32", cache))(t)
		before := plain.Weights()
		step := plain.Engine().StepBytes()
		plain.Close()
		g, err := quantised(t, dir, c.weights, cache)
		if err != nil {
			t.Errorf("%s, %s: %v", c.model, c.weights, err)
			continue
		}
		r := g.Weights()
		var types []string
		for _, l := range r.Linear {
			types = append(types, l.Type)
			// A scale of two bytes for 32 integers, whole panels of columns, and groups that end with the depth.
			if most := map[string]float64{"int8": 0.27, "int4": 0.15, "bf16": 0.5}[l.Type]; most > 0 &&
				float64(l.Bytes) > 2.5*most*float64(l.Float32Bytes) {
				t.Errorf("%s, %s: %s takes %d bytes of %d", c.model, c.weights, l.Type, l.Bytes, l.Float32Bytes)
			}
		}
		if slices.Sort(types); !slices.Equal(types, c.types) {
			t.Errorf("%s, %s: linear layers have the types %v, want %v", c.model, c.weights, types, c.types)
		}
		if a, b := exportedBytes(before), exportedBytes(r); a != b || a == 0 {
			t.Errorf("%s, %s: the report counts %d bytes as exported, without quantising %d", c.model, c.weights, b, a)
		}
		if before.Quantized() || !r.Quantized() {
			t.Errorf("%s, %s: the reports say quantised: %t without it, %t with it", c.model, c.weights, before.Quantized(),
				r.Quantized())
		}
		if n := g.Engine().StepBytes(); n <= 0 || n >= step {
			t.Errorf("%s, %s: a step reads %d bytes of weights, in float32 %d", c.model, c.weights, n, step)
		}
		g.Close()
	}
}

// exportedBytes are those of all weights as they were exported.
func exportedBytes(r *engine.WeightReport) (n int64) {
	for _, l := range r.Linear {
		n += l.Float32Bytes
	}
	for _, f := range r.Float32 {
		n += f.Bytes
	}
	return n
}

// TestQuantizedWeightsAreStored: weights are quantised once. A file that is damaged is made anew, and what is asked
// for in another way, or of another model, has another file.
func TestQuantizedWeightsAreStored(t *testing.T) {
	folder, dir := t.TempDir(), t.TempDir()
	must.Succeed(t, models.Small("gpt2", dir))
	quiet := slog.New(slog.DiscardHandler)
	var first [][]float32
	opened := func(what, dir, weights string, stored bool) {
		t.Helper()
		g := must.Value(quantised(t, dir, weights, fold.At(folder, quiet)))(t, what)
		defer g.Close()
		must.Equal(t, g.Weights().Stored, stored, what, !stored)
		if weights != "int8" {
			return
		}
		got := scores(t, g, 1)
		if first == nil {
			first = got
		}
		for i := range got {
			if !slices.Equal(got[i], first[i]) {
				t.Errorf("%s: logits differ from those of the first opening", what)
				return
			}
		}
	}
	opened("first", dir, "int8", false)
	opened("second", dir, "int8", true)
	opened("four bits", dir, "int4", false)
	opened("another group", dir, "int8,group=64", false)
	opened("activations are no matter of weights", dir, "int8,activations=float32", true)
	copied := t.TempDir()
	must.Succeed(t, models.Small("gpt2", copied))
	opened("a copy of the folder", copied, "int8", true)
	for what, damage := range map[string]func(string, []byte) error{
		"a changed byte": func(path string,
			data []byte) error {
			data[len(data)/2] ^= 4
			return os.WriteFile(path, data, 0o600)
		},
		"a file cut short": func(path string, data []byte) error { return os.Truncate(path, int64(len(data))-1) },
	} {
		list, err := filepath.Glob(filepath.Join(folder, "*"))
		if err != nil || len(list) < 3 {
			t.Fatalf("%v, %v", list, err)
		}
		for _, path := range list {
			data, err := os.ReadFile(path)
			if err == nil {
				err = damage(path, data)
			}
			must.Succeed(t, err)
		}
		opened("after "+what, dir, "int8", false)
		opened("after that", dir, "int8", true)
	}
	// Another model under the same path.
	must.Succeed(t, os.Remove(filepath.Join(dir, "model.onnx")))
	data, err := os.ReadFile(filepath.Join(copied, "model.onnx"))
	must.Succeed(t, err)
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(data, m))
	for _, w := range m.Graph.Initializer {
		if len(w.Dims) == 2 && len(w.RawData) > 16 {
			w.RawData[9] ^= 1 // the last bit of a number, or near it
		}
	}
	if data, err = proto.Marshal(m); err == nil {
		err = os.WriteFile(filepath.Join(dir, "model.onnx"), data, 0o600)
	}
	must.Succeed(t, err)
	g := must.Value(quantised(t, dir, "int8", fold.At(folder, quiet)))(t)
	defer g.Close()
	if g.Weights().Stored {
		t.Error("the weights of another model were taken from the cache")
	}
}

// TestQuantizedAtOnce: openings at once, with one cache and with several over one folder, give one result.
func TestQuantizedAtOnce(t *testing.T) {
	folder, dir := t.TempDir(), t.TempDir()
	must.Succeed(t, models.Small("llama", dir))
	common := fold.At(folder, nil)
	results := make([][][]float32, 4)
	var all sync.WaitGroup
	for i := range results {
		cache := common
		if i%2 == 1 {
			cache = fold.At(folder, nil)
		}
		all.Go(func() {
			g, err := quantised(t, dir, "int4", cache)
			if err != nil {
				t.Error(err)
				return
			}
			defer g.Close()
			results[i] = scores(t, g, 2)
		})
	}
	all.Wait()
	for i, r := range results[1:] {
		must.Equal(t, fmt.Sprint(r), fmt.Sprint(results[0]), i+1)
	}
}

// TestWeightsThatCannotBeQuantized: each is one error, which says what to do.
func TestWeightsThatCannotBeQuantized(t *testing.T) {
	dir := t.TempDir()
	must.Succeed(t, models.Small("gpt2", dir))
	cache := fold.At(t.TempDir(), nil)
	g, err := quantised(t, dir, "int8", cache,
		func(o *decode.Options) { o.Plan = plan.Options{Except: []string{"packed-linear"}} })
	if err == nil {
		g.Close()
	}
	for _, says := range []string{filepath.Join(dir, "model.onnx"), "found no weights that could be stored as int8",
		"needed", "leave the option out"} {
		must.Fail(t, err, says)
	}
	_, set := open(t)
	p := must.Value(loaded.Named(set.Plugins, "packed-linear"))(t)
	symmetric, zeros := prepare.Weights{Layers: prepare.Int4Weights},
		prepare.Weights{Layers: prepare.Int4Weights, ZeroPoints: prepare.WithZeroPoints}
	must.Succeed(t, engine.Quantizes(p, zeros))
	for _, part := range []string{"weight_scale", "type"} {
		without := older(p, part)
		if err := engine.Quantizes(without, symmetric); !isIncompatible(err) ||
			!strings.Contains(err.Error(), "take weights of float32 alone") {
			t.Errorf("a plugin without %s: %v; want one that says that its operators take float32 alone", part, err)
		}
	}
	for _, part := range []string{"weight_zero_point", "asymmetric"} {
		without := older(p, part)
		if err := engine.Quantizes(without, symmetric); err != nil {
			t.Errorf("a plugin without %s, for integers without zero points: %v", part, err)
		}
		if err := engine.Quantizes(without, zeros); !isIncompatible(err) ||
			!strings.Contains(err.Error(), "whose integers have no zero points") {
			t.Errorf("a plugin without %s: %v; want one that says that its integers have no zero points", part, err)
		}
	}
}

// older is a plugin as it was before it had an input or an attribute.
func older(p *plugin.Plugin, without string) *plugin.Plugin {
	info := *p.Info
	info.Operators = slices.Clone(info.Operators)
	for i := range info.Operators {
		op := &info.Operators[i]
		op.Inputs = slices.DeleteFunc(slices.Clone(op.Inputs),
			func(in signature.Parameter) bool { return in.Name == without })
		op.Attributes = slices.DeleteFunc(slices.Clone(op.Attributes),
			func(a signature.Attribute) bool { return a.Name == without })
	}
	return &plugin.Plugin{Path: p.Path, Manifest: p.Manifest, Info: &info}
}

func isIncompatible(err error) bool {
	return errors.Is(err, refusal.ErrIncompatible) && strings.Contains(err.Error(), "install a newer packed-linear")
}

// TestLastLinear: the layer that makes logits is found through what changes its elements one by one, and nothing else.
func TestLastLinear(t *testing.T) {
	for _, c := range []struct{ name, nodes, want string }{
		{"it makes them", "last: logits = PackedLinear x w", "last"},
		{"a cap", "last: a = PackedLinear x w; : b = Div a one; : c = Tanh b; : logits = Mul c one", "last"},
		{"a shape", "last: a = PackedLinear x w; : logits = Reshape a shape", "last"},
		{"a bias", "last: a = PackedLinear x w; : logits = Add one a", "last"},
		{"a sum of two", "first: a = PackedLinear x w; second: b = PackedLinear x w; : logits = Add a b", ""},
		{"another product", "first: a = PackedLinear x w; : logits = MatMul a w", ""},
		{"none", ": logits = MatMul x w", ""},
	} {
		g, err := graph.New(network(t, c.nodes), nil)
		if err == nil {
			g.Provide(capability.LinearPanels, "graft.PackedLinear")
		}
		must.Succeed(t, err, c.name)
		must.Equal(t, engine.LastLinear(g, "logits"), c.want, c.name)
		must.Equal(t, engine.LastLinear(g, ""), "", c.name)
	}
}

// network is a model of nodes, each NAME: OUTPUT = OP INPUTS, with inputs x and shape, constants w and one, and the
// output logits.
func network(t *testing.T, nodes string) *onnx.Model {
	t.Helper()
	value := func(name string, kind onnx.Tensor_DataType, dims ...any) *onnx.ValueInfo {
		return &onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(kind, dims...)}
	}
	g := &onnx.Graph{Name: proto.String("network"),
		Input:       []*onnx.ValueInfo{value("x", onnx.Tensor_FLOAT, 3, 1), value("shape", onnx.Tensor_INT64, 2)},
		Output:      []*onnx.ValueInfo{value("logits", onnx.Tensor_FLOAT, 3, 1)},
		Initializer: []*onnx.Tensor{graph.FloatTensor("w", []int64{1, 1}, 3), graph.FloatTensor("one", nil, 1)}}
	for line := range strings.SplitSeq(nodes, "; ") {
		name, rest, _ := strings.Cut(line, ": ")
		output, call, _ := strings.Cut(rest, " = ")
		words := strings.Fields(call)
		n := &onnx.Node{Name: proto.String(name), OpType: proto.String(words[0]), Input: words[1:], Output: []string{output}}
		if words[0] == "PackedLinear" {
			n.Domain = proto.String("graft")
		}
		g.Node = append(g.Node, n)
	}
	return &onnx.Model{IrVersion: proto.Int64(8), Graph: g,
		OpsetImport: []*onnx.OperatorSet{{Version: proto.Int64(17)},
			{Domain: proto.String("graft"), Version: proto.Int64(1)}}}
}

// TestContentIsRemembered: where a file has not changed for a while, what it holds is known without reading its
// weights.
func TestContentIsRemembered(t *testing.T) {
	if testing.Short() {
		t.Skip("a file is trusted seconds after its last change")
	}
	folder, dir := t.TempDir(), t.TempDir()
	must.Succeed(t, models.Small("gpt2", dir))
	files := func() int {
		list := must.Value(os.ReadDir(folder))(t)
		return len(list)
	}
	for _, c := range []struct {
		wait   time.Duration
		stored bool
		files  int // of integers, and of what a model's file holds
	}{{0, false, 1}, {0, true, 1}, {3100 * time.Millisecond, true, 2}, {0, true, 2}} {
		time.Sleep(c.wait)
		g := must.Value(quantised(t, dir, "int8", fold.At(folder, nil)))(t)
		if n := files(); g.Weights().Stored != c.stored || n < c.files || n > 2 {
			t.Errorf("after %v: stored %t with %d files, want %t with %d or 2", c.wait, g.Weights().Stored, n, c.stored, c.files)
		}
		g.Close()
	}
}

// TestQuantizedMemory: an open model takes what its report counts, with integers much less than without, and float32
// weights are not in memory beside them.
func TestQuantizedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes a model of 650 MB")
	}
	dir := must.Value(models.Cached("gpt2-124m", nil))(t)
	cache := fold.At(t.TempDir(), nil)
	resident := func() int64 {
		debug.FreeOSMemory()
		data, err := os.ReadFile("/proc/self/status")
		if err != nil {
			t.Skip("this system does not say what is resident")
		}
		_, after, _ := strings.Cut(string(data), "VmRSS:")
		kb := must.Value(strconv.ParseInt(strings.Fields(after)[0], 10, 64))(t)
		return kb << 10
	}
	taken := map[string]int64{}
	for _, weights := range []string{"float32", "int8", "int8", "int4"} {
		before := resident()
		g := must.Value(quantised(t, dir, weights, cache))(t)
		taken[weights] = resident() - before
		counted := int64(0)
		for _, l := range g.Weights().Linear {
			counted += l.Bytes
		}
		for _, f := range g.Weights().Float32 {
			counted += f.Bytes
		}
		t.Logf("%s: %d MB resident, %d MB of weights", weights, taken[weights]>>20, counted>>20)
		if taken[weights] > counted+counted/4+64<<20 {
			t.Errorf("%s: %d bytes are resident, and %d are weights", weights, taken[weights], counted)
		}
		g.Close()
	}
	if taken["int8"] > taken["float32"]*6/10 || taken["int4"] > taken["int8"] {
		t.Errorf("resident bytes are %v; want at most 0.6 of float32 for int8, and less for int4", taken)
	}
}
