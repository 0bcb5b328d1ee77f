package blocks_test

import (
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// graphs are the files of all small models and the graphs of all exporters.
func graphs(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	for _, f := range models.SmallFolders() {
		if f.Family {
			continue
		}
		dir := t.TempDir()
		must.Succeed(t, models.Small(f.Name, dir))
		for _, name := range f.Files {
			files["small/"+f.Name+"/"+name] = filepath.Join(dir, name+".onnx")
		}
	}
	for _, f := range fixtures(t) {
		b := must.Value(f.Bytes(1))(t)
		path := filepath.Join(t.TempDir(), "model.onnx")
		must.Succeed(t, os.WriteFile(path, b, 0o644))
		files[f.String()] = path
	}
	return files
}

// at are the lengths that models are run at: one row, so that angles are one a token.
var at = map[string]int64{
	"batch_size": 1, "sequence_length": 3, "past_sequence_length": 5, "past_decoder_sequence_length": 4,
	"encoder_sequence_length": 6, "past_encoder_sequence_length": 6, "decoder_sequence_length": 1, "kv_cache_dim": 16,
	"num_channels": 3, "height": 32, "width": 32, "text_batch_size": 1, "image_batch_size": 1,
}

// TestFactsCompute runs models and computes what the facts say of a block from
// what the model computed itself: queries, keys and values from what they are
// projected from, and what a rotary embedding makes of the first two.
func TestFactsCompute(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	projections, turned := 0, 0
	files := graphs(t)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		t.Run(name, func(t *testing.T) {
			c := opened(t, l, files[name])
			c.values(t)
			for _, b := range c.report.Blocks {
				projections += c.projections(t, b)
				turned += c.rotary(t, b)
			}
		})
	}
	if projections < 300 || turned < 20 {
		t.Errorf("%d projections and %d rotary embeddings were computed, want at least 300 and 20", projections, turned)
	}
}

// computed is a model with the values that facts name.
type computed struct {
	library *ort.Library
	path    string
	model   *model.Model
	graph   *graph.Graph
	shapes  *graph.Shapes
	report  *blocks.Report
	numbers map[string][]float32
	dims    map[string][]int64
}

func opened(t *testing.T, l *ort.Library, path string) *computed {
	t.Helper()
	m := must.Value(model.Open(path))(t)
	t.Cleanup(func() { m.Close() })
	g := must.Value(graph.New(m.Proto(), m))(t)
	c := &computed{library: l, path: path, model: m, graph: g, shapes: graph.Infer(g), numbers: map[string][]float32{},
		dims: map[string][]int64{}}
	c.report = blocks.Find(g, c.shapes)
	return c
}

// values runs the model once for all values of its main graph that facts name.
func (c *computed) values(t *testing.T) {
	t.Helper()
	p := proto.Clone(c.model.Proto()).(*onnx.Model)
	p.Graph.Output = nil
	wanted := map[string]bool{}
	for _, b := range c.report.Blocks {
		w := b.Wiring
		list := []*graph.Value{w.Query, w.Key, w.Value, w.RawQuery, w.RawKey, w.Input}
		if r := w.Rotary; r != nil {
			list = append(list, r.Cos, r.Sin)
		}
		if pr := b.Attention.Projections; pr != nil {
			for _, linear := range []*blocks.Linear{pr.Query, pr.Key, pr.Value} {
				if linear != nil {
					list = append(list, linear.From)
				}
			}
		}
		for _, v := range list {
			if v == nil || wanted[v.Name] || v.Graph != c.graph || v.Tensor != nil {
				continue
			}
			wanted[v.Name] = true
			p.Graph.Output = append(p.Graph.Output,
				&onnx.ValueInfo{Name: proto.String(v.Name), Type: &onnx.Type{Value: &onnx.Type_TensorType_{
					TensorType: &onnx.Type_TensorType{ElemType: proto.Int32(int32(c.shapes.Of(v).DType))}}}})
		}
	}
	if len(wanted) == 0 {
		return
	}
	path := filepath.Join(t.TempDir(), "values.onnx")
	must.Succeed(t, c.model.Write(t.Context(), p, path, model.WriteOptions{}))
	s := must.Value(session.Open(c.library, path, session.Options{Unpatched: true, IntraOpThreads: 1}))(t)
	defer s.Close()
	batch := must.Value(inputs.Make(c.library, c.path, inputs.Options{Seed: 3, Dims: at, LooseDims: true}))(t)
	defer batch.Close()
	inputs := batch.Values
	for _, in := range s.Inputs() {
		if inputs[in.Name] == nil {
			t.Fatalf("input %s was not made", in.Name)
		}
	}
	for name, v := range inputs {
		if !slices.ContainsFunc(s.Inputs(), func(in ort.ValueInfo) bool { return in.Name == name }) {
			v.Close()
			delete(inputs, name)
		}
	}
	names := slices.Sorted(maps.Keys(wanted))
	results := must.Value(s.Run(t.Context(), inputs, names...))(t)
	for i, v := range results {
		defer v.Close()
		data := must.Value(ort.Data[float32](v))(t, names[i])
		c.numbers[names[i]], c.dims[names[i]] = slices.Clone(data), v.Shape()
	}
}

// rows are a value's elements as (tokens, heads * size).
func (c *computed) rows(v *graph.Value, layout string) []float32 {
	data, d := c.numbers[v.Name], c.dims[v.Name]
	if data == nil || len(d) != 4 || layout == "bshd" {
		return data
	}
	places := map[byte]int64{}
	stride, step := map[byte]int64{}, int64(1)
	for i := 3; i >= 0; i-- {
		places[layout[i]], stride[layout[i]] = d[i], step
		step *= d[i]
	}
	list := make([]float32, 0, len(data))
	for b := range places['b'] {
		for s := range places['s'] {
			for h := range places['h'] {
				for e := range places['d'] {
					list = append(list, data[b*stride['b']+s*stride['s']+h*stride['h']+e*stride['d']])
				}
			}
		}
	}
	return list
}

// projections computes queries, keys and values from what they come from.
func (c *computed) projections(t *testing.T, b *blocks.Block) (count int) {
	t.Helper()
	a, w := b.Attention, b.Wiring
	if a.Projections == nil || strings.HasPrefix(b.Node, "optimum::if") || b.Obstacle != "" {
		return 0
	}
	values := c.rows
	packedValue := func(*graph.Value, string) []float32 { // the last third of each row
		all, width := c.rows(w.Query, w.QueryLayout), a.KVHeads*a.ValueSize
		var list []float32
		for row := range slices.Chunk(all, int(3*width)) {
			list = append(list, row[2*width:]...)
		}
		return list
	}
	for _, side := range []struct {
		name   string
		l      *blocks.Linear
		v      *graph.Value
		layout string
		width  int64
	}{
		{"query", a.Projections.Query, w.RawQuery, w.RawQueryLayout, a.Heads * a.HeadSize},
		{"key", a.Projections.Key, w.RawKey, w.RawKeyLayout, a.KVHeads * a.HeadSize},
		{"value", a.Projections.Value, w.Value, w.ValueLayout, a.KVHeads * a.ValueSize},
	} {
		if side.l == nil {
			continue
		}
		if side.l.Width != side.width {
			t.Errorf("%s: its %s is projected to %d columns, want %d", b.Node, side.name, side.l.Width, side.width)
			continue
		}
		read := values
		if side.v == nil && w.Packed {
			read = packedValue
		}
		got := read(side.v, side.layout)
		want := c.linear(t, side.l)
		must.Succeed(t, close32(got, want), b.Node, "its", side.name, "is no", side.l.From.Name, "W + b")
		count++
	}
	return count
}

// linear is x W + b as the facts have it.
func (c *computed) linear(t *testing.T, l *blocks.Linear) []float32 {
	t.Helper()
	x := c.numbers[l.From.Name]
	w := c.constant(t, l.Weight)
	columns := int64(len(w)) / l.Inputs
	var bias []float64
	if l.Bias != "" {
		bias = c.constant(t, l.Bias)[l.BiasOffset : l.BiasOffset+l.Width]
	}
	var list []float32
	for row := range slices.Chunk(x, int(l.Inputs)) {
		for j := range l.Width {
			sum := 0.0
			for i, xi := range row {
				at := int64(i)*columns + l.Offset + j
				if l.Transposed {
					at = (l.Offset+j)*l.Inputs + int64(i)
				}
				sum += float64(xi) * w[at]
			}
			sum *= l.Factor
			if bias != nil {
				sum += l.BiasFactor * bias[j]
			}
			list = append(list, float32(sum))
		}
	}
	return list
}

func (c *computed) constant(t *testing.T, name string) []float64 {
	t.Helper()
	v := c.graph.Lookup(name)
	if v == nil || v.Tensor == nil {
		t.Fatalf("%s is no constant", name)
	}
	list := must.Value(c.graph.Numbers(v.Tensor, 1<<24))(t)
	return list
}

// rotary turns queries and keys as the facts say, where angles lie by token.
func (c *computed) rotary(t *testing.T, b *blocks.Block) (count int) {
	t.Helper()
	a, w := b.Attention, b.Wiring
	r := w.Rotary
	if r == nil || r.Rows != nil || b.Obstacle != "" {
		return 0
	}
	var angles [2][]float32
	for i, v := range []*graph.Value{r.Cos, r.Sin} {
		var err error
		if angles[i], err = r.Angles(c.dims[v.Name], c.numbers[v.Name]); err != nil {
			t.Fatalf("%s: %v", b.Node, err)
		}
	}
	for _, side := range []struct {
		raw, v             *graph.Value
		rawLayout, vLayout string
		heads              int64
	}{{w.RawQuery, w.Query, w.RawQueryLayout, w.QueryLayout, a.Heads},
		{w.RawKey, w.Key, w.RawKeyLayout, w.KeyLayout, a.KVHeads}} {
		x, want := c.rows(side.raw, side.rawLayout), c.rows(side.v, side.vLayout)
		got := turned(r, x, angles[0], angles[1], side.heads, a.HeadSize)
		must.Succeed(t, close32(got, want), b.Node, "turning", side.raw.Name, "does not give", side.v.Name)
		count++
	}
	return count
}

// turned applies a rotary embedding to rows (tokens, heads * size).
func turned(r *blocks.Rotary, x, cos, sin []float32, heads, size int64) []float32 {
	out := slices.Clone(x)
	half := r.Size / 2
	for t := range int64(len(x)) / (heads * size) {
		for h := range heads {
			at := (t*heads + h) * size
			for j := range half {
				i, k := at+j, at+j+half
				if r.Style == "interleaved" {
					i, k = at+2*j, at+2*j+1
				}
				c, s := cos[t*half+j], sin[t*half+j]
				out[i], out[k] = x[i]*c-x[k]*s, x[k]*c+x[i]*s
			}
		}
	}
	return out
}

func close32(got, want []float32) error {
	if len(got) != len(want) || len(got) == 0 {
		return fmt.Errorf("%d elements, want %d", len(got), len(want))
	}
	for i := range got {
		if off := math.Abs(float64(got[i] - want[i])); !(off <= 1e-4+1e-4*math.Abs(float64(want[i]))) {
			return fmt.Errorf("element %d is %g, want %g", i, got[i], want[i])
		}
	}
	return nil
}
