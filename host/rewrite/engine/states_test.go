package engine

import (
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/internal/must"
)

// States of numbers that an engine does not keep are refused by name; those without attention are kept.
func TestStatesAnEngineCannotKeep(t *testing.T) {
	for _, c := range []struct{ kind, to, want string }{{"f32", "1", ""}, {"f16", "10", "the state p is of type"}} {
		g, shapes := blockstest.Graph(t, `
			in a i64[b, 1]
			in p `+c.kind+`[b, 8]
			out r `+c.kind+`[b, 8]
			const table f32[64, 8]
			x = Gather(table, a) axis=0
			y = Squeeze(x, [1])
			z = Cast(y) to=`+c.to+`
			r = Add(p, z)`)
		d := &Decoder{Graph: g, Shapes: shapes, Report: blocks.Find(g, shapes)}
		if c.want == "" {
			must.Succeed(t, d.Check())
			continue
		}
		must.Fail(t, d.Check(), c.want)
	}
}
