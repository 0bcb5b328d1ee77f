package fused_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/meaning/fused"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// groups begins a graph with a GroupQueryAttention of 4 heads of 16 in 2 groups.
const groups = `
	in packed f32[batch, seq, 128]
	in odd f32[batch, seq, 132]
	in halves f16[batch, seq, 128]
	in q f32[batch, seq, 64]
	in k f32[batch, seq, 32]
	in v f32[batch, seq, 32]
	in pk f32[batch, 2, past, 16]
	in pv f32[batch, 2, past, 16]
	in lengths i32[batch]
	in longest i32[1]
	in sinks f32[4]
	const known f32[4]
	const few f32[3]
	in at i64[batch, seq]
	const cos f32[40, 8]
	const wide f32[40, 9]
	out y f32[batch, seq, 64]
	out nk f32[batch, 2, total, 16]
	out nv f32[batch, 2, total, 16]
	`

// TestWholeGroups: which GroupQueryAttention is taken apart, and why another is not.
func TestWholeGroups(t *testing.T) {
	const heads = " num_heads=4 kv_num_heads=2"
	for _, c := range []struct{ name, text, why string }{
		{"packed", "y, nk, nv = com.microsoft.GroupQueryAttention(packed, , , pk, pv, lengths, longest)" + heads, ""},
		{"apart", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest)" + heads, ""},
		{"turned", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest, cos, cos) do_rotary=1" +
			heads, ""},
		{"turned by positions of its own",
			"y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest, cos, cos, at) do_rotary=1" + heads,
			""},
		{"no angles", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest) do_rotary=1" + heads,
			"its tables of angles are not of float32, (positions, at most half a head)"},
		{"angles of more than a head",
			"y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest, wide, wide) do_rotary=1" + heads,
			"its tables of angles are not of float32, (positions, at most half a head)"},
		{"float16", "y, nk, nv = com.microsoft.GroupQueryAttention(halves, , , pk, pv, lengths, longest)" + heads,
			"its queries are not of float32, (batch, positions, width)"},
		{"widths that do not fit", "y, nk, nv = com.microsoft.GroupQueryAttention(odd, , , pk, pv, lengths, longest)" + heads,
			"the widths of its queries, keys and values do not fit its heads"},
		{"keys alone", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, , pk, pv, lengths, longest)" + heads,
			"the widths of its queries, keys and values do not fit its heads"},
		{"groups that do not fit", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest) " +
			"num_heads=4 kv_num_heads=3", "the widths of its queries, keys and values do not fit its heads"},
		{"no past", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, , , lengths, longest)" + heads,
			"it has no past of float32, (batch, heads, positions, size)"},
		{"a sink", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest, , , , , sinks)" + heads,
			"its sinks are no constant of float32, one a query head"},
		{"sinks of fewer heads", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest, , , , , " +
			"few)" + heads, "its sinks are no constant of float32, one a query head"},
		{"a sink of each head", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest, , , , , " +
			"known)" + heads, ""},
		{"a smooth softmax", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest) " +
			"smooth_softmax=1" + heads, ""},
		{"as ONNX Runtime saves it", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest) " +
			"smooth_softmax=-1 causal=1 qk_output=0 sliding_window_cache=0" + heads, ""},
		{"a cache in fewer bits", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest, , , , " +
			", , sinks, sinks)" + heads, "its input 13, sinks, is not known"},
		{"a past of a window", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest) " +
			"sliding_window_cache=1 local_window_size=3" + heads, ""},
		{"a past of no window", "y, nk, nv = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest) " +
			"sliding_window_cache=1" + heads, "its past is that of a window, of which no length is given"},
		{"scores that are read", "y, nk, nv, s = com.microsoft.GroupQueryAttention(q, k, v, pk, pv, lengths, longest)" +
			heads + "\nz = Identity(s)", "its scores are read"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := blockstest.Graph(t, groups+c.text)
			at := slices.Index(operators(g), fused.GroupQuery)
			if why := fused.WholeGroup(g.Nodes[at], shapes); why != c.why {
				t.Fatalf("%q, want %q", why, c.why)
			}
			any, err := fused.TakeGroupsApart(g, shapes)
			if err != nil || any != (c.why == "") {
				t.Fatalf("taken apart: %t, %v", any, err)
			}
			must.Equal(t, slices.Contains(operators(g), fused.GroupQuery), (c.why != ""), operators(g))
			must.Equal(t, g.Lookup("position_ids") != nil, c.name == "turned")
		})
	}
}

// TestGroupsCompute runs GroupQueryAttention in ONNX Runtime, and what it is taken apart into, on random problems
// without padding.
func TestGroupsCompute(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	problems := 40
	if n, err := strconv.Atoi(os.Getenv("GRAFT_TEST_PROBLEMS")); err == nil {
		problems = n
	}
	for i := range problems {
		p := randomGroup(rand.New(rand.NewPCG(uint64(i), 17)))
		before := blockstest.Proto(t, p.text)
		g, shapes := blockstest.Graph(t, p.text)
		if any, err := fused.TakeGroupsApart(g, shapes); err != nil || !any {
			t.Fatalf("problem %d, %s: taken apart: %t, %v", i, p.text, any, err)
		}
		p.compare(t, l, before, g.Model())
	}
}

// TestPastOfAWindow: what GroupQueryAttention computes with a past that holds the newest keys alone, in a buffer of its
// own length, is what it is taken apart into with all keys: of a prompt longer than the window, and of a step after it.
func TestPastOfAWindow(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	p := &group{batch: 2, seq: 7, room: 4, random: rand.New(rand.NewPCG(1, 17)), inputs: map[string][]float32{}}
	p.text = `
	in q f32[batch, seq, 128]
	in pk f32[batch, 2, room, 16]
	in pv f32[batch, 2, room, 16]
	in lengths i32[batch]
	in longest i32[1]
	const cos f32[20, 8]
	const sin f32[20, 8]
	out y f32[batch, seq, 64]
	out nk f32[batch, 2, kept, 16]
	out nv f32[batch, 2, kept, 16]
	y, nk, nv = com.microsoft.GroupQueryAttention(q, , , pk, pv, lengths, longest, cos, sin) ` +
		"num_heads=4 kv_num_heads=2 do_rotary=1 sliding_window_cache=1 local_window_size=3"
	before := blockstest.Proto(t, p.text)
	g, shapes := blockstest.Graph(t, p.text)
	if any, err := fused.TakeGroupsApart(g, shapes); err != nil || !any {
		t.Fatalf("taken apart: %t, %v", any, err)
	}
	var window, all [][]float32
	for _, what := range []string{"prompt", "step"} {
		if what == "step" {
			p.past, p.seq = p.seq, 1
			p.inputs = map[string][]float32{"pk": window[1], "pv": window[2]}
		}
		window = p.run(t, l, before)
		if p.inputs["pk"], p.inputs["pv"] = []float32{}, []float32{}; what == "step" {
			p.inputs["pk"], p.inputs["pv"] = all[1], all[2]
		}
		room := p.room
		p.room = p.past
		all = p.run(t, l, g.Model())
		p.room = room
		if len(window[0]) != len(all[0]) || len(all[0]) == 0 {
			t.Fatalf("%s: %d elements, want %d", what, len(all[0]), len(window[0]))
		}
		for i, want := range window[0] {
			if d := math.Abs(float64(all[0][i] - want)); !(d <= 2e-5) {
				t.Fatalf("%s: element %d is %g, want %g", what, i, all[0][i], want)
			}
		}
	}
}

// TestAnglesOfAStep: where a table of angles holds those of a step's own tokens, lengthened to as many as there are
// keys, the parts turn by the angles alone; a table of which positions may read more stays.
func TestAnglesOfAStep(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	for _, c := range []struct {
		name, start, step, rows string
		own                     bool
	}{
		{"each token's", "0", "1", "batch", true},
		{"from the second on", "1", "1", "batch", false},
		{"every second", "0", "2", "batch", false},
		{"of the first token alone", "0", "1", "1", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := &group{batch: 2, seq: 1, past: 6, random: rand.New(rand.NewPCG(1, 17)), inputs: map[string][]float32{}}
			p.text = fmt.Sprintf(`
	in q f32[batch, 1, 128]
	in pk f32[batch, 2, past, 16]
	in pv f32[batch, 2, past, 16]
	in lengths i32[batch]
	in longest i32[1]
	in angles f32[%s, 1, 8]
	const fill f32[6, 8]
	out y f32[batch, 1, 64]
	out nk f32[batch, 2, total, 16]
	out nv f32[batch, 2, total, 16]
	cosines = Cos(angles)
	sines = Sin(angles)
	cos_rows = Reshape(cosines, [-1,8])
	sin_rows = Reshape(sines, [-1,8])
	cos = Concat(cos_rows, fill) axis=0
	sin = Concat(sin_rows, fill) axis=0
	tokens = Shape(pk) start=0 end=1
	steps = Mul(tokens, [%s])
	end = Add(steps, [%s])
	counted = Range([%[3]s], end, [%[2]s])
	at = Reshape(counted, [-1,1])
	y, nk, nv = com.microsoft.GroupQueryAttention(q, , , pk, pv, lengths, longest, cos, sin, at) num_heads=4 `+
				"kv_num_heads=2 do_rotary=1", c.rows, c.step, c.start)
			before := blockstest.Proto(t, p.text)
			g, shapes := blockstest.Graph(t, p.text)
			if any, err := fused.TakeGroupsApart(g, shapes); err != nil || !any {
				t.Fatalf("taken apart: %t, %v", any, err)
			}
			must.Equal(t, g.Lookup("cos") == nil && g.Lookup("sin") == nil, c.own)
			p.compare(t, l, before, g.Model())
		})
	}
}

// group is a problem: a graph, and its lengths.
type group struct {
	room                           int64 // of a past of a window
	text                           string
	batch, seq, past, groups, size int64
	random                         *rand.Rand
	inputs                         map[string][]float32
}

func randomGroup(r *rand.Rand) *group {
	pick := func(list ...int64) int64 { return list[r.IntN(len(list))] }
	p := &group{batch: pick(1, 2, 3), seq: pick(1, 2, 7), past: pick(0, 1, 9), groups: pick(1, 2, 4),
		size: pick(16, 32, 48), random: r, inputs: map[string][]float32{}}
	if p.seq > 1 && p.past > 0 {
		p.batch = 1 // the operator takes several tokens after a past for one row
	}
	heads := p.groups * pick(1, 2, 3)
	attributes := fmt.Sprintf(" num_heads=%d kv_num_heads=%d", heads, p.groups)
	in := []string{"q", "k", "v", "pk", "pv", "lengths", "longest"}
	var text strings.Builder
	if r.IntN(2) == 0 {
		fmt.Fprintf(&text, "in q f32[batch, seq, %d]\n", (heads+2*p.groups)*p.size)
		in[1], in[2] = "", ""
	} else {
		fmt.Fprintf(&text, "in q f32[batch, seq, %d]\nin k f32[batch, seq, %d]\nin v f32[batch, seq, %d]\n", heads*p.size,
			p.groups*p.size, p.groups*p.size)
	}
	fmt.Fprintf(&text, "in pk f32[batch, %d, past, %d]\nin pv f32[batch, %d, past, %d]\nin lengths i32[batch]\nin "+
		"longest i32[1]\n", p.groups, p.size, p.groups, p.size)
	turned := r.IntN(3) > 0
	if turned {
		half := p.size / 2
		if r.IntN(3) == 0 && half%16 == 0 {
			half /= 2 // the first features of a head
		}
		fmt.Fprintf(&text, "const cos f32[20, %d]\nconst sin f32[20, %d]\n", half, half)
		in = append(in, "cos", "sin")
		attributes += fmt.Sprintf(" do_rotary=1 rotary_interleaved=%d", r.IntN(2))
	}
	if r.IntN(3) == 0 {
		for len(in) < 10 {
			in = append(in, "")
		}
		in = append(in, "bias")
		fmt.Fprintf(&text, "in bias f32[%d, %d, seq, total]\n", pick(1, p.batch), pick(1, heads))
	}
	switch r.IntN(4) {
	case 0:
		for len(in) < 11 {
			in = append(in, "")
		}
		in = append(in, "sinks")
		fmt.Fprintf(&text, "const sinks f32[%d]\n", heads)
	case 1:
		attributes += " smooth_softmax=1"
	}
	for _, a := range []string{" scale=0.37", " softcap=1.5", fmt.Sprintf(" local_window_size=%d", 1+r.IntN(5))} {
		if r.IntN(3) == 0 {
			attributes += a
		}
	}
	fmt.Fprintf(&text, "out y f32[batch, seq, %d]\nout nk f32[batch, %d, total, %d]\nout nv f32[batch, %d, total, %d]\n",
		heads*p.size, p.groups, p.size, p.groups, p.size)
	fmt.Fprintf(&text, "y, nk, nv = com.microsoft.GroupQueryAttention(%s)%s", strings.Join(in, ", "), attributes)
	p.text = text.String()
	return p
}

// compare says that two models give the same.
func (p *group) compare(t *testing.T, l *ort.Library, before, after *onnx.Model) {
	t.Helper()
	want, got := p.run(t, l, before), p.run(t, l, after)
	for j, name := range []string{"y", "nk", "nv"} {
		if len(want[j]) == 0 || len(want[j]) != len(got[j]) {
			t.Fatalf("%s\n%d elements of %s, want %d", p.text, len(got[j]), name, len(want[j]))
		}
		for k := range want[j] {
			if d := math.Abs(float64(got[j][k] - want[j][k])); !(d <= 2e-5) {
				t.Fatalf("%s\nelement %d of %s is %g, want %g", p.text, k, name, got[j][k], want[j][k])
			}
		}
	}
}

// run feeds a model of the problem, the same numbers each time.
func (p *group) run(t *testing.T, l *ort.Library, m *onnx.Model) [][]float32 {
	t.Helper()
	raw := must.Value(proto.Marshal(m))(t)
	s, err := session.FromBytes(l, raw, session.Options{Unpatched: true, IntraOpThreads: 1})
	must.Succeed(t, err, p.text)
	defer s.Close()
	inputs := map[string]*ort.Value{}
	defer func() {
		for _, v := range inputs {
			v.Close()
		}
	}()
	symbols := map[string]int64{"batch": p.batch, "seq": p.seq, "past": p.past, "total": p.past + p.seq,
		"room": p.room}
	for _, in := range m.Graph.Input {
		shape, count := []int64{}, int64(1)
		for _, d := range in.Type.GetTensorType().Shape.Dim {
			n := d.GetDimValue()
			if name := d.GetDimParam(); name != "" {
				n = symbols[name]
			}
			shape, count = append(shape, n), count*n
		}
		var v *ort.Value
		switch in.GetName() {
		case "lengths", "longest":
			list := make([]int32, count)
			for i := range list {
				list[i] = int32(p.past + p.seq)
				if in.GetName() == "lengths" {
					list[i]-- // as the operator counts
				}
			}
			v, err = ort.NewTensor(l, shape, list)
		case "position_ids":
			list := make([]int64, count)
			for i := range list {
				list[i] = p.past + int64(i)%p.seq
			}
			v, err = ort.NewTensor(l, shape, list)
		default:
			list := p.inputs[in.GetName()]
			if list == nil {
				list = make([]float32, count)
				for i := range list {
					list[i] = float32(p.random.NormFloat64())
				}
				p.inputs[in.GetName()] = list
			}
			v, err = ort.NewTensor(l, shape, list)
		}
		must.Succeed(t, err)
		inputs[in.GetName()] = v
	}
	results := must.Value(s.Run(t.Context(), inputs, "y", "nk", "nv"))(t, p.text)
	var list [][]float32
	for _, v := range results {
		data := must.Value(ort.Data[float32](v))(t)
		list = append(list, slices.Clone(data))
		v.Close()
	}
	return list
}
