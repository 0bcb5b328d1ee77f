package roles_test

import (
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/internal/must"
)

// A recurrent state comes back as the output of its size that is first made of it, whatever either is called.
func TestStates(t *testing.T) {
	const layers = `
		in a i64[b, 1]
		in p f32[b, 8, 3]
		in q f32[b, 8, 3]
		out y f32[b, 1, 8]
		out r f32[b, 8, 3]
		out s f32[b, 8, 3]
		const table f32[64, 8]
		const w f32[8, 1, 4]
		x = Gather(table, a) axis=0
		xt = Transpose(x) perm=0,2,1
		c = Concat(p, xt) axis=-1
		s = Slice(c, [-3], [99], [-1])
		d = Conv(c, w) group=8 kernel_shape=4
		e = Concat(q, d) axis=-1
		r = Slice(e, [-3], [99], [-1])
		f = Conv(e, w) group=8 kernel_shape=4
		y = Transpose(f) perm=0,2,1`
	for _, c := range []struct {
		name, text string
		want       map[string]string
	}{
		{"two layers", layers, map[string]string{"p": "s", "q": "r"}},
		{"no tokens", `
			in p f32[b, 8, 3]
			out s f32[b, 8, 3]
			s = Relu(p)`, map[string]string{"p": ""}},
		{"two outputs", `
			in a i64[b, 1]
			in p f32[b, 8]
			out r f32[b, 8]
			out s f32[b, 8]
			const table f32[64, 8]
			x = Gather(table, a) axis=0
			z = Squeeze(x, [1])
			r = Add(p, z)
			s = Sub(p, z)`, map[string]string{"p": ""}},
		{"one output of two", `
			in a i64[b, 1]
			in p f32[b, 8]
			in q f32[b, 8]
			out r f32[b, 8]
			const table f32[64, 8]
			x = Gather(table, a) axis=0
			z = Squeeze(x, [1])
			o = Add(p, z)
			r = Add(o, q)`, map[string]string{"p": "", "q": ""}},
		{"of any length", `
			in a i64[b, n]
			in p f32[b, m, 8]
			out r f32[b, m, 8]
			const table f32[64, 8]
			x = Gather(table, a) axis=0
			z = ReduceMean(x, [1])
			r = Add(p, z)`, map[string]string{"p": ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g, shapes := blockstest.Graph(t, c.text)
			r := roles.Find(g, shapes, blocks.Find(g, shapes))
			for _, v := range g.Inputs {
				want, asked := c.want[v.Name]
				if !asked {
					continue
				}
				got := ""
				if out := r.State(v); out != nil {
					got = out.Name
				}
				must.Equal(t, got, want, v.Name)
				must.Equal(t, r.Of(v) == roles.State, want != "", v.Name)
			}
		})
	}
}
