package prepare

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/rewrite/engine"
	"github.com/opgraft/graft/internal/must"
)

// Queries of four heads of sixteen features, of which all are turned or the first eight.
const (
	wholeHalves = `
		in x f32[rows, 1, 64]
		in angles f32[rows, 1, 8]
		out y f32[rows, 4, 1, 16]
		d = Concat(angles, angles) axis=-1
		c = Cos(d)
		n = Sin(d)
		cf = Mul(c, 1.25)
		nf = Mul(n, 1.25)
		cos = Unsqueeze(cf, [1])
		sin = Unsqueeze(nf, [1])
		r = Reshape(x, [-1,1,4,16])
		q = Transpose(r) perm=0,2,1,3
		q1 = Slice(q, [0], [8], [3])
		q2 = Slice(q, [8], [100], [3])
		qn = Neg(q2)
		qh = Concat(qn, q1) axis=-1
		qc = Mul(q, cos)
		qs = Mul(qh, sin)
		y = Add(qc, qs)`
	partHalves = `
		in x f32[rows, 1, 64]
		in angles f32[rows, 1, 4]
		out y f32[rows, 4, 1, 16]
		d = Concat(angles, angles) axis=-1
		c = Cos(d)
		n = Sin(d)
		cos = Unsqueeze(c, [1])
		sin = Unsqueeze(n, [1])
		r = Reshape(x, [-1,1,4,16])
		h = Transpose(r) perm=0,2,1,3
		q = Slice(h, [0], [8], [3])
		rest = Slice(h, [8], [16], [3])
		q1 = Slice(q, [0], [4], [3])
		q2 = Slice(q, [4], [100], [3])
		qn = Neg(q2)
		qh = Concat(qn, q1) axis=-1
		qc = Mul(q, cos)
		qs = Mul(qh, sin)
		t = Add(qc, qs)
		y = Concat(t, rest) axis=-1`
	neighbours = `
		a4 = Unsqueeze(angles, [-1])
		d4 = Concat(a4, a4) axis=-1
		d = Reshape(d4, [-1,1,#])
		c = Cos(d)
		n = Sin(d)
		cos = Unsqueeze(c, [2])
		sin = Unsqueeze(n, [2])
		q0 = Slice(q, [0], [100], [3], [2])
		q1 = Slice(q, [1], [100], [3], [2])
		qn = Neg(q1)
		qn5 = Unsqueeze(qn, [-1])
		q05 = Unsqueeze(q0, [-1])
		q5 = Concat(qn5, q05) axis=-1
		qh = Reshape(q5, [-1,1,4,#])
		qc = Mul(q, cos)
		qs = Mul(qh, sin)
		`
	wholeNeighbours = `
		in x f32[rows, 1, 64]
		in angles f32[rows, 1, 8]
		out y f32[rows, 1, 4, 16]
		q = Reshape(x, [-1,1,4,16])`
	partNeighbours = `
		in x f32[rows, 1, 64]
		in angles f32[rows, 1, 4]
		out y f32[rows, 1, 4, 16]
		h = Reshape(x, [-1,1,4,16])
		q = Slice(h, [0], [8], [3])
		rest = Slice(h, [8], [16], [3])`
)

// One node turns as the nodes did that it stands for: as far from float64 as they are, at any number of rows.
func TestTurnsAtOnceAreThoseOfTheExport(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	sized := func(size string) string { return strings.ReplaceAll(neighbours, "#", size) }
	random := rand.New(rand.NewPCG(1, 7))
	for _, c := range []struct {
		name, text  string
		size        int // of a head that is turned
		interleaved bool
		factor      float64
	}{
		{"halves, scaled", wholeHalves, 16, false, 1.25},
		{"halves of a part", partHalves, 8, false, 1},
		{"neighbours", wholeNeighbours + sized("16") + "y = Add(qc, qs)", 16, true, 1},
		{"neighbours of a part", partNeighbours + sized("8") + "t = Add(qc, qs)\ny = Concat(t, rest) axis=-1", 8, true, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := blockstest.Proto(t, c.text)
			data := must.Value(proto.Marshal(p))(t)
			m := must.Value(model.Parse(data, ""))(t)
			g := must.Value(graph.New(m.Proto(), m))(t)
			must.Succeed(t, engine.TurnAtOnce(g, graph.Infer(g)))
			turned := must.Value(proto.Marshal(m.Proto()))(t)
			if !slices.ContainsFunc(g.Nodes, func(n *graph.Node) bool { return n.Is("com.microsoft.RotaryEmbedding") }) {
				t.Fatal("nothing was replaced")
			}
			for _, rows := range []int{1, 2, 7} {
				x, angles := make([]float32, rows*64), make([]float32, rows*c.size/2)
				for i := range x {
					x[i] = float32(random.NormFloat64())
				}
				for i := range angles {
					angles[i] = 100 * random.Float32()
				}
				before, after := turnedBy(t, l, data, rows, x, angles), turnedBy(t, l, turned, rows, x, angles)
				for i := range x {
					want := rotation(x, angles, i, c.size, c.interleaved) * c.factor
					if e := math.Abs(float64(after[i]) - want); !(e < 1e-6*(1+math.Abs(want))) ||
						math.Abs(float64(after[i]-before[i])) > 1e-6 {
						t.Fatalf("%d rows: element %d is %g, the nodes of the export made %g, float64 makes %g", rows, i, after[i],
							before[i], want)
					}
				}
			}
		})
	}
}

// rotation is one element of what is turned, of heads of 16 features, in float64. The angles
// are those of a row, size/2 each.
func rotation(x, angles []float32, i, size int, interleaved bool) float64 {
	feature, row := i%16, i/64
	if feature >= size {
		return float64(x[i])
	}
	pair, other, sign := feature%(size/2), i+size/2, -1.0
	if feature >= size/2 {
		other, sign = i-size/2, 1
	}
	if interleaved {
		pair, other, sign = feature/2, i+1, -1
		if feature%2 == 1 {
			other, sign = i-1, 1
		}
	}
	angle := float64(angles[row*size/2+pair])
	return float64(x[i])*math.Cos(angle) + sign*float64(x[other])*math.Sin(angle)
}

// turnedBy runs a model.
func turnedBy(t *testing.T, l *ort.Library, data []byte, rows int, x, angles []float32) []float32 {
	t.Helper()
	s, err := session.FromBytes(l, data, session.Options{Unpatched: true, IntraOpThreads: 1})
	must.Succeed(t, err)
	defer s.Close()
	inputs := map[string]*ort.Value{}
	for name, data := range map[string][]float32{"x": x, "angles": angles} {
		if inputs[name], err = ort.NewTensor(l, []int64{int64(rows), 1, int64(len(data) / rows)}, data); err != nil {
			t.Fatal(err)
		}
		defer inputs[name].Close()
	}
	results := must.Value(s.Run(t.Context(), inputs, "y"))(t)
	defer results[0].Close()
	list := must.Value(ort.Data[float32](results[0]))(t)
	return slices.Clone(list)
}
