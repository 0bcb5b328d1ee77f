package engine

import (
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/internal/must"
)

// TestBlocksThatNoEngineServes are refused by what they are, before any graph is made.
func TestBlocksThatNoEngineServes(t *testing.T) {
	for _, c := range []struct {
		w    blocks.Wiring
		want string
	}{
		{blocks.Wiring{Grown: true}, "its keys are joined with their past and its values are not"},
		{blocks.Wiring{ValueLayout: "bhds"}, "features of its values or of its result are columns"},
		{blocks.Wiring{OutputLayout: "bd1s"}, "features of its values or of its result are columns"},
	} {
		must.Fail(t, servable(&blocks.Block{Attention: &blocks.Attention{DType: "float32"}, Wiring: &c.w}), c.want)
	}
}
