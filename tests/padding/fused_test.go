package padding

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/host/session/sessions"
	"github.com/opgraft/graft/internal/must"
)

// Encoders of one layer as ONNX Runtime's optimizer writes them, up to the first token's row.
const (
	rowsIn = `
	in x f32[batch, seq, 64]`
	tokensIn = `
	in ids i32[batch, seq]
	in types i32[batch, seq]
	const words f32[50, 64]
	const places f32[40, 64]
	const kinds f32[2, 64]
	const scale f32[64]
	const shift f32[64]`
	layer = `
	const w f32[64, 192]
	const b f32[192]
	const wo f32[64, 64]
	const bo f32[64]
	const g1 f32[64]
	const s1 f32[64]
	const wi f32[64, 128]
	const bi f32[128]
	const wd f32[128, 64]
	const bd f32[64]
	out y f32[batch, 1, 64]
	h = MatMul(a, wo)
	n = com.microsoft.SkipLayerNormalization(h, x, g1, s1, bo) epsilon=0.000001
	i = MatMul(n, wi)
	f = com.microsoft.BiasGelu(i, bi)
	d = MatMul(f, wd)
	m = com.microsoft.SkipLayerNormalization(d, n, g1, s1, bd) epsilon=0.000001
	y = Gather(m, [0]) axis=1`
	inner = `
	a = com.microsoft.Attention(x, w, b, mask) num_heads=4 FILL`
	apart = `
	const wq f32[64, 64]
	const wk f32[64, 64]
	const wv f32[64, 64]
	q = MatMul(x, wq)
	k = MatMul(x, wk)
	v = MatMul(x, wv)
	a = com.microsoft.MultiHeadAttention(q, k, v, b, mask) num_heads=4 FILL`
)

// masking makes what a mask says.
type masking func(r *rand.Rand, batch, seq int) []int32

func visibleKeys(r *rand.Rand, batch, seq int) (list []int32) {
	for _, seen := range mask(r, batch, seq, true) {
		if seen {
			list = append(list, 1)
		} else {
			list = append(list, 0)
		}
	}
	return list
}

// ends are lengths of which some are 0, and some beyond the last position.
func ends(r *rand.Rand, batch, seq int) (list []int32) {
	for range batch {
		list = append(list, int32(r.IntN(seq+3)))
	}
	return list
}

func endsAndStarts(r *rand.Rand, batch, seq int) []int32 {
	list := ends(r, batch, seq)
	for range batch {
		list = append(list, int32(r.IntN(seq+2))-1)
	}
	return list
}

func cumulative(r *rand.Rand, batch, seq int) []int32 {
	list := ends(r, batch, seq)
	for range 2 {
		sum := int32(0)
		list = append(list, 0)
		for _, n := range list[:batch] {
			sum += n
			list = append(list, sum)
		}
	}
	return list
}

func pairsOfKeys(r *rand.Rand, batch, seq int) (list []int32) {
	for range batch * seq * seq {
		list = append(list, int32(r.IntN(2)))
	}
	return list
}

// written are encoders with every form of mask that ONNX Runtime's operators take.
var written = []struct {
	name  string
	text  string
	mask  func(batch, seq int) []int64 // its shape
	says  masking
	rows  plan.Rows // which are computed by default
	fills []string
}{
	{"attention, keys", rowsIn + "\n in mask i32[batch, seq]" + inner, dims(1, 1), visibleKeys, plan.VisibleRows,
		everyFill},
	{"attention, lengths", rowsIn + "\n in mask i32[batch]" + inner, dims(1), ends, plan.VisibleRows, everyFill},
	{"attention, ends and starts", rowsIn + "\n in mask i32[2*batch]" + inner,
		func(b, _ int) []int64 { return []int64{2 * int64(b)} }, endsAndStarts, plan.VisibleRows, everyFill},
	{"attention, lengths and their sums", rowsIn + "\n in mask i32[3*batch + 2]" + inner,
		func(b, _ int) []int64 { return []int64{3*int64(b) + 2} }, cumulative, plan.VisibleRows, everyFill},
	{"attention, keys of each query", rowsIn + "\n in mask i32[batch, seq, seq]" + inner, dims(1, 1, 1), pairsOfKeys,
		plan.AllRows, everyFill},
	{"attention, a mask of an unknown form", rowsIn + "\n in mask i32[some]" + inner,
		func(b, _ int) []int64 { return []int64{int64(b)} }, ends, plan.AllRows, everyFill},
	{"heads, keys", rowsIn + "\n in mask i32[batch, seq]" + apart, dims(1, 1), visibleKeys, plan.VisibleRows, everyFill},
	{"heads, lengths", rowsIn + "\n in mask i32[batch]" + apart, dims(1), ends, plan.VisibleRows, everyFill},
	{"heads, keys of each query", rowsIn + "\n in mask i32[batch, seq, seq]" + apart, dims(1, 1, 1), pairsOfKeys,
		plan.AllRows, everyFill},
	{"embedding that counts, attention", tokensIn + `
	in mask i32[batch, seq]
	x, index = com.microsoft.EmbedLayerNormalization(ids, types, words, places, kinds, scale, shift, mask) epsilon=0.000001` + strings.ReplaceAll(inner, "mask)", "index)"), dims(1, 1), visibleKeys, plan.VisibleRows, everyFill},
	{"embedding that is told positions, attention", tokensIn + `
	in mask i32[batch, seq]
	in at i32[batch, seq]
	x, index = com.microsoft.EmbedLayerNormalization(ids, types, words, places, kinds, scale, shift, mask, at) epsilon=0.000001` + strings.ReplaceAll(inner, "mask)", "index)"), dims(1, 1), visibleKeys, plan.VisibleRows, everyFill},
	{"embedding, attention by keys", tokensIn + `
	in mask i32[batch, seq]
	x, index = com.microsoft.EmbedLayerNormalization(ids, types, words, places, kinds, scale, shift) epsilon=0.000001` + inner, dims(1, 1), visibleKeys, plan.VisibleRows, everyFill},
	{"embedding that counts, heads", tokensIn + `
	in mask i32[batch, seq]
	x, index = com.microsoft.EmbedLayerNormalization(ids, types, words, places, kinds, scale, shift, mask) epsilon=0.000001` + strings.ReplaceAll(apart, "mask)", "index)"), dims(1, 1), visibleKeys, plan.VisibleRows, everyFill},
}

// everyFill are what masks add to scores: what the operator does by default, and what exporters have.
var everyFill = []string{"", "mask_filter_value=-3.4028235e38", "mask_filter_value=-1e9"}

func dims(axes ...int) func(batch, seq int) []int64 {
	return func(batch, seq int) []int64 {
		shape := []int64{int64(batch)}
		for range axes[1:] {
			shape = append(shape, int64(seq))
		}
		return shape
	}
}

// encoderFile writes a model with small seeded weights.
func encoderFile(t *testing.T, text string) string {
	p := blockstest.Proto(t, text)
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range p.Graph.Initializer {
		if onnx.Tensor_DataType(c.GetDataType()) != onnx.Tensor_FLOAT {
			continue
		}
		n := len(c.FloatData)
		c.FloatData = nil
		for range n {
			x := float32(r.NormFloat64()) * 0.15
			if strings.HasPrefix(c.GetName(), "g") || c.GetName() == "scale" {
				x++
			}
			c.RawData = binary.LittleEndian.AppendUint32(c.RawData, math.Float32bits(x))
		}
	}
	b := must.Value(proto.Marshal(p))(t)
	path := filepath.Join(t.TempDir(), "model.onnx")
	must.Succeed(t, os.WriteFile(path, b, 0o600))
	return path
}

// forced is a session with every operator that applies.
func (b *bench) forced(t *testing.T, path string, mode plan.Padding) (*session.Session, *patch.Analysis) {
	return b.planned(t, path, &sessions.Patcher{Plugins: b.set.Plugins,
		Options: b.set.Plan(plan.Options{Padding: mode, Force: true})})
}

// feed are random values of a model's inputs but its mask.
func (b *bench) feed(t *testing.T, s *session.Session, r *rand.Rand, batch, seq int, shape []int64,
	says []int32) map[string]*ort.Value {
	fed := map[string]*ort.Value{}
	add := func(name string, v *ort.Value, err error) {
		must.Succeed(t, err)
		fed[name] = v
		t.Cleanup(v.Close)
	}
	tokens := []int64{int64(batch), int64(seq)}
	below := map[string]int{"ids": 50, "types": 2, "at": 40}
	for _, in := range s.Inputs() {
		switch in.Name {
		case "x":
			rows := make([]float32, batch*seq*64)
			for i := range rows {
				rows[i] = float32(r.NormFloat64())
			}
			v, err := ort.NewTensor(b.library, append(tokens, 64), rows)
			add("x", v, err)
		case "mask":
			v, err := ort.NewTensor(b.library, shape, says)
			add("mask", v, err)
		default:
			list := make([]int32, batch*seq)
			for i := range list {
				list[i] = int32(r.IntN(below[in.Name]))
			}
			v, err := ort.NewTensor(b.library, tokens, list)
			add(in.Name, v, err)
		}
	}
	return fed
}

// TestFusedEncoders: an encoder as ONNX Runtime's optimizer writes it gives ONNX Runtime's answers with every form of
// mask, and runs without padding where its mask is one of tokens.
func TestFusedEncoders(t *testing.T) {
	b := open(t)
	for _, c := range written {
		for _, fill := range c.fills {
			t.Run(c.name+" "+fill, func(t *testing.T) {
				path := encoderFile(t, strings.ReplaceAll(c.text, "FILL", fill)+layer)
				plain := must.Value(session.Open(b.library, path, session.Options{Unpatched: true}))(t)
				defer plain.Close()
				s, a := b.forced(t, path, plan.ExactPadding)
				defer s.Close()
				if a == nil {
					t.Fatal("the session is not patched")
				}
				must.Equal(t, a.Plan.Rows(), c.rows, a.PaddingReason)
				for round := range rounds(t) {
					r := rand.New(rand.NewPCG(uint64(round), 3))
					batch, seq := 1+r.IntN(4), 1+r.IntN(30)
					fed := b.feed(t, plain, r, batch, seq, c.mask(batch, seq), c.says(r, batch, seq))
					b.same(t, fmt.Sprintf("round %d, %d x %d", round, batch, seq), plain, s, fed)
				}
			})
		}
	}
}

// same compares a run of two sessions.
func (b *bench) same(t *testing.T, where string, plain, s *session.Session, fed map[string]*ort.Value) {
	t.Helper()
	want := must.Value(plain.Run(t.Context(), fed))(t, where)
	got := must.Value(s.Run(t.Context(), fed))(t, where)
	for i := range want {
		must.Equal(t, differs(want[i], got[i], nil, false), "", where, i)
		want[i].Close()
		got[i].Close()
	}
}

// TestFusedClassifier: of what ONNX Runtime's optimizer wrote of BERT, with the first token's output alone, hidden
// tokens are not computed by default.
func TestFusedClassifier(t *testing.T) {
	b := open(t)
	path := rewrittenOf(t, "ortopt", "bert", func(p *onnx.Model) {
		p.Graph.Output = slices.DeleteFunc(p.Graph.Output,
			func(o *onnx.ValueInfo) bool { return o.GetName() != "pooler_output" })
	})
	must.Equal(t, b.kept(t, path), "")
	if !b.compare(t, path, plan.ExactPadding) {
		t.Error("the mask was not understood")
	}
}

// TestFusedMean: the mean of rows that the program's mask shows is that of rows which are computed, also where the
// model counts its mask and so hides others than the mask does.
func TestFusedMean(t *testing.T) {
	b := open(t)
	path := rewrittenOf(t, "ortopt", "bert", func(p *onnx.Model) {
		for _, c := range constants() {
			if slices.Contains([]string{"minus", "one", "least"}, c.GetName()) {
				p.Graph.Initializer = append(p.Graph.Initializer, c)
			}
		}
		for i, n := range pooled() {
			for j, name := range n.Input {
				n.Input[j] = map[string]string{"mask": "attention_mask", "x": "last_hidden_state"}[name]
				if n.Input[j] == "" {
					n.Input[j] = name
				}
			}
			n.Name = proto.String(fmt.Sprint("head", i))
			p.Graph.Node = append(p.Graph.Node, n)
		}
		out := &onnx.ValueInfo{Name: proto.String("y"), Type: graph.TensorType(onnx.Tensor_FLOAT)}
		out.Type.GetTensorType().Shape = nil
		p.Graph.Output = []*onnx.ValueInfo{out}
	})
	must.Equal(t, b.kept(t, path), "")
	if !b.compare(t, path, plan.ExactPadding) {
		t.Error("the mask was not understood")
	}
}

// TestFusedRunsThatAreRefused: what ONNX Runtime's operators refuse is refused, and so are masks that say more than
// the parts of these operators distinguish: such runs are the model's own session's to answer.
func TestFusedRunsThatAreRefused(t *testing.T) {
	b := open(t)
	keys := func(list ...int32) masking { return func(*rand.Rand, int, int) []int32 { return list } }
	model := func(name string) string {
		for _, c := range written {
			if c.name == name {
				return encoderFile(t, strings.ReplaceAll(c.text, "FILL", "")+layer)
			}
		}
		t.Fatalf("there is no encoder %q", name)
		return ""
	}
	for _, c := range []struct {
		encoder, name string
		shape         []int64
		says          masking
		plain, want   string // the errors without graft and with it, in part; "" for none
	}{
		{"attention, lengths", "a negative length", []int64{2}, keys(3, -1), "is negative", "element [1, 0] of mask is -1"},
		{"attention, lengths", "lengths of 0, and beyond the last position", []int64{2}, keys(0, 9), "", ""},
		{"attention, lengths", "a length too many", []int64{3}, keys(3, 1, 2), "shall have length of batch_size",
			"needed are those of the mask"},
		{"attention, lengths and their sums", "too few", []int64{1}, keys(3), "mask_index", "needed are those of the mask"},
		{"attention, keys", "more positions", []int64{2, 5}, keys(1, 1, 1, 0, 0, 1, 1, 1, 0, 0), "total_sequence_length",
			"needed are those of the mask"},
		{"attention, keys", "other numbers", []int64{2, 4}, keys(1, 2, 0, 0, 1, 1, 1, 0), "", "element [0, 1] of mask is 2"},
		{"embedding that counts, attention", "other numbers", []int64{2, 4}, keys(1, -1, 0, 0, 1, 1, 1, 0), "",
			"element [0, 1] of mask is 2"},
		{"embedding that counts, attention", "more positions", []int64{2, 5}, keys(1, 1, 1, 0, 0, 1, 1, 1, 0, 0),
			"shall have same shape", ""},
	} {
		t.Run(c.encoder+", "+c.name, func(t *testing.T) {
			path := model(c.encoder)
			plain, err := session.Open(b.library, path, session.Options{Unpatched: true, LogSeverity: session.LogFatal})
			must.Succeed(t, err)
			defer plain.Close()
			s, _ := b.forced(t, path, plan.ExactPadding)
			defer s.Close()
			fed := b.feed(t, plain, rand.New(rand.NewPCG(1, 1)), 2, 4, c.shape, c.says(nil, 2, 4))
			for _, run := range []struct {
				s    *session.Session
				want string
			}{{plain, c.plain}, {s, c.want}} {
				results, err := run.s.Run(t.Context(), fed)
				for _, v := range results {
					v.Close()
				}
				if run.want == "" && c.plain == "" && err != nil ||
					run.want != "" && (err == nil || !strings.Contains(err.Error(), run.want)) ||
					run.want == "" && c.plain != "" && err == nil {
					t.Errorf("error %v, want %q", err, run.want)
				}
			}
		})
	}
}
