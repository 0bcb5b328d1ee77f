package engine_test

import (
	"slices"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/rewrite/engine"
	"github.com/opgraft/graft/internal/must"
)

// engineEnd is the last layer of an engine graph: attention, its projection, a
// residual, a normalization and the linear layer to the vocabulary.
const engineEnd = `
	in x f32[rows, 1, 64]
	in graft.select i64[chosen]
	out logits f32[chosen, 1, 100]
	const w f32[64, 64]
	const v f32[64, 100]
	const scale f32[64]
	a = graft.CachedAttention(x)
	shaped = Reshape(a, [-1,1,64])
	m = MatMul(shaped, w)
	r = Add(m, x)
	n = LayerNormalization(r, scale) axis=-1
	picked = Gather(n, graft.select) axis=0
	logits = MatMul(picked, v)`

func TestSelectEarlyPicksRowsBehindTheLastAttention(t *testing.T) {
	p, got := blockstest.Rewrite(t, engineEnd, engine.SelectEarly, blockstest.Declare("a", "rows", 4, 1, 16))
	want := []string{"CachedAttention", "Gather", "Reshape", "MatMul", "Gather", "Add", "LayerNormalization", "MatMul"}
	must.Equal(t, got, want)
	must.Equal(t, p.Node[len(p.Node)-1].Output[0], "logits")
}

// What something else reads is needed for all rows.
func TestSelectEarlyLeavesWhatAttentionReads(t *testing.T) {
	_, got := blockstest.Rewrite(t, `
		in x f32[rows, 1, 64]
		in graft.select i64[chosen]
		out logits f32[chosen, 1, 100]
		const v f32[64, 100]
		h = Relu(x)
		a = graft.CachedAttention(h)
		shaped = Reshape(a, [-1,1,64])
		r = Add(shaped, h)
		s = Softmax(r) axis=0
		e = Add(s, r)
		picked = Gather(e, graft.select) axis=0
		logits = MatMul(picked, v)`, engine.SelectEarly, blockstest.Declare("a", "rows", 4, 1, 16))
	// A softmax along the rows needs them all, and so does what it reads.
	want := []string{"Relu", "CachedAttention", "Reshape", "Add", "Softmax", "Gather", "Gather", "Add", "MatMul"}
	slices.Sort(want)
	slices.Sort(got)
	must.Equal(t, got, want)
}
