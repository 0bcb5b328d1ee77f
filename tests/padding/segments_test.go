package padding

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/measure/inputs"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
)

// segmented are forms in which a program says which keys each query sees: n x n, of several texts in one row.
var segmented = []struct {
	name  string
	in    string // the value of the encoder that the mask stands for
	shape []any
	kind  onnx.Tensor_DataType
	nodes []*onnx.Node // between the mask, given, and that value, made
}{
	{"numbers (B, S, S)", "/Unsqueeze_1_output_0", []any{"batch_size", "sequence_length", "sequence_length"},
		onnx.Tensor_INT64, []*onnx.Node{op("Unsqueeze", "given one", "made")}},
	{"numbers of 32 bits (B, 1, S, S)", "/Unsqueeze_1_output_0",
		[]any{"batch_size", 1, "sequence_length", "sequence_length"}, onnx.Tensor_INT32,
		[]*onnx.Node{op("Cast", "given", "made", integer("to", 7))}},
	{"truth values (B, 1, S, S)", "/Unsqueeze_1_output_0", []any{"batch_size", 1, "sequence_length", "sequence_length"},
		onnx.Tensor_BOOL, []*onnx.Node{op("Cast", "given", "made", integer("to", 7))}},
	{"floats (B, 1, S, S)", "/Cast_output_0", []any{"batch_size", 1, "sequence_length", "sequence_length"},
		onnx.Tensor_FLOAT, nil},
	{"added (B, 1, S, S)", "/Where_1_output_0", []any{"batch_size", 1, "sequence_length", "sequence_length"},
		onnx.Tensor_FLOAT, nil},
	{"added (1, 1, S, S)", "/Where_1_output_0", []any{1, 1, "sequence_length", "sequence_length"}, onnx.Tensor_FLOAT, nil},
}

// TestSegments: a program that packs several texts into one row says so by a mask of n x n. Attention is one operator
// with the mask as it is given, and the answers are ONNX Runtime's, those of queries that see no key included.
func TestSegments(t *testing.T) {
	b := open(t)
	for _, c := range segmented {
		for _, mode := range []plan.Padding{plan.ExactPadding, plan.IgnorePadding} {
			t.Run(c.name+" "+string(mode), func(t *testing.T) {
				path := rewritten(t, func(p *onnx.Model) {
					to := "given"
					if len(c.nodes) > 0 {
						to = "made"
					}
					if len(c.shape) == 3 {
						p.Graph.Initializer = append(p.Graph.Initializer, longs("one", []int64{1}, 1))
					}
					for _, n := range p.Graph.Node {
						for i, name := range n.Input {
							if name == c.in {
								n.Input[i] = to
							}
						}
					}
					for _, n := range c.nodes {
						p.Graph.Node = append([]*onnx.Node{proto.CloneOf(n)}, p.Graph.Node...)
					}
					p.Graph.Input = append(p.Graph.Input,
						&onnx.ValueInfo{Name: proto.String("given"), Type: graph.TensorType(c.kind, c.shape...)})
				})
				b.segments(t, path, c.in == "/Where_1_output_0", mode)
			})
		}
	}
}

// segments compares a patched session with ONNX Runtime over random masks of segments.
func (b *bench) segments(t *testing.T, path string, added bool, mode plan.Padding) {
	m := must.Value(model.Open(path))(t)
	defer m.Close()
	plain := must.Value(session.Open(b.library, path, session.Options{Unpatched: true}))(t)
	defer plain.Close()
	attention := 0
	p := &sessions.Patcher{Plugins: b.set.Plugins, Options: b.set.Plan(plan.Options{Padding: mode})}
	s, a := b.planned(t, path, p)
	defer s.Close()
	for _, c := range a.Plan.Choices {
		if c.Operator != nil && c.Kind == "attention" {
			attention++
		}
	}
	if attention == 0 {
		t.Error("no attention was replaced")
	}
	for round := range rounds(t) {
		r := rand.New(rand.NewPCG(uint64(round), 11))
		batch, positions := 1+r.IntN(4), 1+r.IntN(40)
		where := fmt.Sprintf("round %d, %d x %d", round, batch, positions)
		fed := must.Value(inputs.Of(b.library, m,
			inputs.Options{Seed: uint64(round),
				Lengths: map[roles.Length]int64{roles.Batch: int64(batch), roles.New: int64(positions)}}))(t, where)
		must.Succeed(t, writeSegments(r, fed.Values["given"], added))
		want := must.Value(plain.Run(t.Context(), fed.Values))(t, where)
		got := must.Value(s.Run(t.Context(), fed.Values))(t, where)
		for i, o := range plain.Outputs() {
			must.Equal(t, differs(want[i], got[i], make([]bool, batch*positions), false), "", where, o.Name)
		}
		fed.Close()
		for i := range want {
			want[i].Close()
			got[i].Close()
		}
	}
}

// writeSegments lets each row's tokens see those of their own text: texts of random lengths one after the other, and
// now and then tokens of none, which see nothing.
func writeSegments(r *rand.Rand, v *ort.Value, added bool) error {
	data, err := v.Bytes()
	if err != nil {
		return err
	}
	shape := v.Shape()
	n := int(shape[len(shape)-1])
	size := len(data) / max(1, int(v.Len()))
	text := make([]int, n)
	for i := range int(v.Len()) {
		query, key := i/n%n, i%n
		if i%(n*n) == 0 {
			for at, of := 0, 1; at < n; of++ {
				length := 1 + r.IntN(n)
				for ; at < n && length > 0; at, length = at+1, length-1 {
					text[at] = of
					if of%4 == 0 {
						text[at] = -at - 1
					}
				}
			}
		}
		sees := text[query] == text[key] && text[key] > 0
		at := data[i*size:][:size]
		clear(at)
		switch {
		case added && !sees:
			binary.LittleEndian.PutUint32(at, math.Float32bits([]float32{-1e30, -math.MaxFloat32}[i/(n*n)%2]))
		case added || !sees:
		case v.Element() == ort.Float32:
			binary.LittleEndian.PutUint32(at, math.Float32bits(1))
		default:
			at[0] = 1
		}
	}
	return nil
}
