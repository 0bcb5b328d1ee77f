package decode_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/exported"
	"github.com/opgraft/graft/host/generate/modeldir"
	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// TestTypedCachesAgainstRounding: an engine over a cache of keys and values in fewer bits has the logits of the
// exported model whose graph rounds each key and value with operators of ONNX, run by ONNX Runtime over the whole
// text: what is left between the two is a small part of what rounding costs.
func TestTypedCachesAgainstRounding(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	for _, folder := range []string{"llama", "bart"} {
		dir := t.TempDir()
		must.Succeed(t, models.Small(folder, dir))
		r := rand.New(rand.NewPCG(11, 3))
		in, n := &decode.Input{Tokens: tokensOf(r, 40)}, 40
		if folder == "bart" {
			in, n = &decode.Input{Tokens: tokensOf(r, 33), Prompt: tokensOf(r, 25)}, 25
		}
		usual := exportedLogits(t, l, dir, in, r, n)
		for _, storage := range []plan.Storage{plan.Float16, plan.BFloat16, plan.Int8} {
			rounded := t.TempDir()
			roundKeysAndValues(t, dir, rounded, storage)
			want := exportedLogits(t, l, rounded, in, r, n)
			g := must.Value(decode.Open(t.Context(), dir, decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20,
				Attention: prepare.Attention{Self: plan.KeysValues, Cross: plan.KeysValues, Storage: storage}}))(t)
			f, err := g.Force(t.Context(), in)
			got := allLogits(t, f, err, r, n, 0)
			g.Close()
			off, lost := apart(got, want), apart(want, usual)
			t.Logf("%s, %s: rounding moves logits by %.2g of their size, the engine is %.2g off that", folder, storage, lost,
				off)
			// Of numbers near the middle between two of the type some are rounded to the other one, because two matmuls differ
			// in the last digits of float32: the finer the type, the more of them.
			share := 20.0
			if storage == plan.Float16 {
				share = 3
			}
			if !(lost > 1e-5 && off <= lost/share) {
				t.Errorf("%s, %s: the engine's logits are %.2g of their size off those of a graph that rounds, which are %.2g "+
					"off the exported model's; want 1/%g of it at most", folder, storage, off, lost, share)
			}
		}
	}
}

func tokensOf(r *rand.Rand, n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = int32(5 + r.IntN(100))
	}
	return list
}

// exportedLogits are those of the exported model, of all tokens.
func exportedLogits(t *testing.T, l *ort.Library, dir string, in *decode.Input, r *rand.Rand, n int) []float32 {
	t.Helper()
	g := must.Value(exported.Open(t.Context(), dir, decode.Options{Library: l, ReferenceSelector: true}))(t)
	defer g.Close()
	f, err := g.Force(t.Context(), in)
	return allLogits(t, f, err, r, n, 0)
}

// apart is the root of the mean square of differences, as a share of that of what is wanted.
func apart(got, want []float32) float64 {
	var off, size float64
	for i, x := range want {
		off += (float64(got[i]) - float64(x)) * (float64(got[i]) - float64(x))
		size += float64(x) * float64(x)
	}
	return math.Sqrt(off / size)
}

// roundKeysAndValues copies a model folder whose decoder rounds keys and values, of self and of cross attention, as a
// cache of a type does: in the graph that reads whole texts.
func roundKeysAndValues(t *testing.T, dir, to string, storage plan.Storage) {
	t.Helper()
	must.Succeed(t, os.CopyFS(to, os.DirFS(dir)))
	files, err := modeldir.Find(to)
	must.Succeed(t, err)
	path := files.Decoder
	if files.First != "" {
		path = files.First
	}
	layouts := keysAndValues(t, path)
	data := must.Value(os.ReadFile(path))(t)
	m := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(data, m))
	opset := int64(0)
	for _, o := range m.OpsetImport {
		if o.GetDomain() == "" {
			opset = o.GetVersion()
		}
	}
	var nodes []*onnx.Node
	found := 0
	for _, n := range m.Graph.Node {
		nodes = append(nodes, n)
		for i, out := range n.Output {
			layout, ok := layouts[out]
			if !ok {
				continue
			}
			found++
			n.Output[i] = out + ".exact"
			nodes = append(nodes, rounding(m.Graph, out, storage, layout, opset)...)
		}
	}
	if found != len(layouts) || found == 0 {
		t.Fatalf("%s makes %d of %d keys and values", filepath.Base(path), found, len(layouts))
	}
	m.Graph.Node = nodes
	if data, err = proto.Marshal(m); err != nil {
		t.Fatal(err)
	}
	must.Succeed(t, os.WriteFile(path, data, 0o600))
}

// laid is how a key or value lies: its features last, unless transposed; heads is 0 where they have an axis of their
// own.
type laid struct {
	transposed bool
	heads      int64
}

// keysAndValues are new keys and values of all layers of a graph, by name.
func keysAndValues(t *testing.T, path string) map[string]laid {
	t.Helper()
	m := must.Value(model.Open(path))(t)
	defer m.Close()
	x := must.Value(patch.View(t.Context(), m, m.Proto()))(t)
	layouts := map[string]laid{}
	for _, b := range x.Report.Blocks {
		if b.Attention == nil || b.Wiring.Key == nil || b.Wiring.Value == nil {
			continue
		}
		for _, side := range []struct {
			v      *graph.Value
			layout string
		}{{b.Wiring.Key, b.Wiring.KeyLayout}, {b.Wiring.Value, b.Wiring.ValueLayout}} {
			l := laid{transposed: strings.HasSuffix(side.layout, "ds")}
			if len(x.Shapes.Of(side.v).Dims) == 3 {
				l.heads = b.Attention.KVHeads
			}
			layouts[side.v.Name] = l
		}
	}
	return layouts
}

// rounding is nodes that make a value from its exact numbers as a cache of a type holds it.
func rounding(g *onnx.Graph, name string, storage plan.Storage, layout laid, opset int64) (nodes []*onnx.Node) {
	node := func(op, out string, attributes []*onnx.Attribute, ins ...string) string {
		nodes = append(nodes, &onnx.Node{OpType: proto.String(op), Name: proto.String(out), Input: ins, Output: []string{out},
			Attribute: attributes})
		return out
	}
	whole := func(key string, v int64) *onnx.Attribute {
		return &onnx.Attribute{Name: proto.String(key), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(v)}
	}
	exact := name + ".exact"
	cast := func(kind onnx.Tensor_DataType, out, in string) string {
		return node("Cast", out, []*onnx.Attribute{whole("to", int64(kind))}, in)
	}
	switch storage {
	case plan.Float16:
		cast(onnx.Tensor_FLOAT, name, cast(onnx.Tensor_FLOAT16, name+".half", exact))
		return nodes
	case plan.BFloat16:
		cast(onnx.Tensor_FLOAT, name, cast(onnx.Tensor_BFLOAT16, name+".half", exact))
		return nodes
	}
	axis := int64(-1)
	if layout.transposed {
		axis = -2
	}
	constant := func(suffix string, t *onnx.Tensor) string {
		t.Name = proto.String(name + suffix)
		g.Initializer = append(g.Initializer, t)
		return t.GetName()
	}
	split := func(out, in string, dims ...int64) string {
		return node("Reshape", out, nil, in,
			constant(strings.TrimPrefix(out, name)+".dims",
				&onnx.Tensor{DataType: proto.Int32(int32(onnx.Tensor_INT64)), Dims: []int64{int64(len(dims))}, Int64Data: dims}))
	}
	made := name
	if layout.heads > 0 {
		exact, made = split(name+".heads", exact, 0, 0, layout.heads, -1), name+".rounded"
	}
	most := constant(".127", &onnx.Tensor{DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), FloatData: []float32{127}})
	size := node("Abs", name+".size", nil, exact)
	var greatest string
	if keep := whole("keepdims", 1); opset >= 18 {
		axes := constant(".axes",
			&onnx.Tensor{DataType: proto.Int32(int32(onnx.Tensor_INT64)), Dims: []int64{1}, Int64Data: []int64{axis}})
		greatest = node("ReduceMax", name+".greatest", []*onnx.Attribute{keep}, size, axes)
	} else {
		axes := &onnx.Attribute{Name: proto.String("axes"), Type: onnx.Attribute_INTS.Enum(), Ints: []int64{axis}}
		greatest = node("ReduceMax", name+".greatest", []*onnx.Attribute{axes, keep}, size)
	}
	inverse := node("Div", name+".inverse", nil, most, greatest)
	integers := node("Round", name+".integers", nil, node("Mul", name+".large", nil, exact, inverse))
	node("Mul", made, nil, integers, node("Div", name+".scale", nil, greatest, most))
	if layout.heads > 0 {
		split(name, made, 0, 0, -1)
	}
	return nodes
}

// TestTypedCacheIsNamed: what a cache stores is in the plan, and a strategy in fewer bits takes the bytes of its type.
func TestTypedCacheIsNamed(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	dir := t.TempDir()
	must.Succeed(t, models.Small("gpt2", dir))
	bytes := map[plan.Storage]int64{}
	for _, storage := range []plan.Storage{"", plan.BFloat16, plan.Int8} {
		g := must.Value(decode.Prepare(t.Context(), dir,
			decode.Options{Library: l, Plugins: set, CacheBytes: 64 << 20,
				Attention: prepare.Attention{Self: plan.KeysValues, Storage: storage}}))(t)
		c := g.Choices[0]
		want := "keys_values"
		if storage != "" {
			want += fmt.Sprintf(" in %s", storage)
		}
		must.Equal(t, c.Candidate.String(), want, c.Candidate)
		i := slices.IndexFunc(c.Options, func(o plan.Option) bool { return o.Candidate == c.Candidate })
		bytes[storage] = c.Options[i].Largest.Bytes
		g.Close()
	}
	if bytes[""] != 2*bytes[plan.BFloat16] || bytes[plan.Int8] >= bytes[plan.BFloat16] {
		t.Errorf("the largest request takes %v bytes", bytes)
	}
}
