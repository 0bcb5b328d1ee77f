package linear_test

import (
	"slices"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
)

// TestFuseLinearTakesInRootMeanSquares: a linear layer begins with the normalization that it alone reads, in every
// form that exporters give it, and with nothing that only looks like one.
func TestFuseLinearTakesInRootMeanSquares(t *testing.T) {
	const body = `
		in x f32[rows, 64]
		in p f32[4, 64, 16]
		in q f32[4, 64, 16]
		in other f32[rows, 64]
		out z f32[rows, 64]
		const scale f32[64]
		`
	const layers = `
		a = graft.PackedLinear(n, p) columns=64
		b = graft.PackedLinear(n, q) columns=64
		z = Div(a, b)`
	whole := []string{"PackedLinear", "PackedLinear", "Div"}
	for _, c := range []struct {
		name, norm string
		want       []string // nil: the normalization stays
	}{
		{"as PyTorch's exporters write it", `
			s = Pow(x, 2.0)
			m = ReduceMean(s, [-1])
			e = Add(m, 0.25)
			r = Sqrt(e)
			d = Div(1.0, r)
			y = Mul(x, d)
			n = Mul(scale, y)`, whole},
		{"a quotient, a square as a product, the scale second", `
			s = Mul(x, x)
			m = ReduceMean(s, [1])
			e = Add(0.25, m)
			r = Sqrt(e)
			y = Div(x, r)
			n = Mul(y, scale)`, whole},
		{"a reciprocal and Casts of float32 to itself", `
			f = Cast(x) to=1
			s = Pow(f, 2.0)
			m = ReduceMean(s, [-1])
			e = Add(m, 0.25)
			r = Sqrt(e)
			d = Reciprocal(r)
			y = Mul(d, f)
			c = Cast(y) to=1
			n = Mul(scale, c)`, whole},
		{"a power of minus a half", `
			s = Pow(x, 2.0)
			m = ReduceMean(s, [-1])
			e = Add(m, 0.25)
			d = Pow(e, -0.5)
			y = Mul(x, d)
			n = Mul(scale, y)`, whole},
		{"one node", "n = SimplifiedLayerNormalization(x, scale) epsilon=0.25", whole},
		{"another power", `
			s = Pow(x, 3.0)
			m = ReduceMean(s, [-1])
			e = Add(m, 0.25)
			r = Sqrt(e)
			y = Div(x, r)
			n = Mul(scale, y)`, nil},
		{"the mean of columns", `
			s = Pow(x, 2.0)
			m = ReduceMean(s, [0])
			e = Add(m, 0.25)
			r = Sqrt(e)
			y = Div(x, r)
			n = Mul(scale, y)`, nil},
		{"the mean of another value", `
			s = Pow(other, 2.0)
			m = ReduceMean(s, [-1])
			e = Add(m, 0.25)
			r = Sqrt(e)
			y = Div(x, r)
			n = Mul(scale, y)`, nil},
		{"a root over x", `
			s = Pow(x, 2.0)
			m = ReduceMean(s, [-1])
			e = Add(m, 0.25)
			r = Sqrt(e)
			y = Div(r, x)
			n = Mul(scale, y)`, nil},
		{"another axis", "n = SimplifiedLayerNormalization(x, scale) axis=0", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, got := blockstest.Rewrite(t, body+c.norm+layers, fuse, blockstest.Declare("n", "rows", 64),
				blockstest.Declare("a", "rows", 64), blockstest.Declare("b", "rows", 64))
			if c.want == nil {
				if slices.Equal(got, whole) {
					t.Fatal("the normalization is gone")
				}
				return
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("nodes %v, want %v", got, c.want)
			}
			for _, n := range p.Node[:2] {
				if !slices.Equal(n.Input[2:], []string{"", "", "scale"}) || n.Input[0] != "x" {
					t.Errorf("a layer reads %q", n.Input)
				}
				found := 0
				for _, a := range n.Attribute {
					if a.GetName() == "norm_epsilon" && a.GetF() == 0.25 || a.GetName() == "norm_centred" && a.GetI() == 0 {
						found++
					}
				}
				if found != 2 {
					t.Errorf("attributes %v", n.Attribute)
				}
			}
		})
	}
}

// TestFuseLinearGatesWhatIsNormalized: a gate normalizes x as its layer did.
func TestFuseLinearGatesWhatIsNormalized(t *testing.T) {
	p, got := blockstest.Rewrite(t, `
		in x f32[rows, 64]
		in p f32[4, 64, 16]
		out z f32[rows, 32]
		const scale f32[64]
		n = SimplifiedLayerNormalization(x, scale) epsilon=0.25
		y = graft.PackedLinear(n, p) columns=64
		a, b = Split(y) axis=-1 num_outputs=2
		g = Relu(a)
		m = Mul(g, b)
		z = Identity(m)`, fuse, blockstest.Declare("y", "rows", 64))
	if want := []string{"PackedLinear", "Identity"}; !slices.Equal(got, want) {
		t.Fatalf("nodes %v, want %v", got, want)
	}
	found := map[string]bool{}
	for _, a := range p.Node[0].Attribute {
		found[a.GetName()] = a.GetF() == 0.25 || a.GetName() == "norm_centred" && a.GetI() == 0
	}
	if !found["norm_epsilon"] || !found["norm_centred"] {
		t.Errorf("attributes %v", p.Node[0].Attribute)
	}
}
