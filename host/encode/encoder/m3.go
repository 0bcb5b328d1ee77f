package encoder

import (
	"maps"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/folder"
)

// m3 is what exports of BGE-M3 (Chen et al. 2024) give beside a dense vector, each of which may be left out: a weight
// of each token, and a vector of each but the first. The outputs have the names of FlagEmbedding's results.
type m3 struct {
	sparse, tokens int     // numbers of the outputs; 0 where there is none
	special        []int64 // tokens that have no weight
}

// chooseM3 takes the outputs of BGE-M3 where the graph has those of words or of tokens.
func (r *route) chooseM3(path string, o Options) (found bool, err error) {
	b := r.base
	dense, gives := b.named("dense_vecs", 2)
	sparse, words := b.named("sparse_vecs", 3)
	tokens, late := b.named("colbert_vecs", 3)
	if !gives || !words && !late {
		return false, nil
	}
	switch {
	case len(o.Pooling) > 0:
		return true, &diagnostic.Error{Path: b.path, Found: "the output dense_vecs, a vector that the graph has pooled",
			Needed: "no pooling", Fix: "leave out the pooling"}
	case words && sparse.Shape[2] > 1:
		return true, &diagnostic.Error{Path: b.path, Found: "the output " + sparse.String(),
			Needed: "a weight of each token, [batch, sequence, 1]"}
	}
	r.m3, r.gives, r.whole = &m3{}, Gives{Dense: true, Sparse: words, Tokens: late}, true
	r.outputs = []output{{dense, 0}}
	if words {
		r.m3.sparse, r.outputs = len(r.outputs), append(r.outputs, output{sparse, 0})
	}
	if late {
		r.m3.tokens, r.outputs = len(r.outputs), append(r.outputs, output{tokens, 1})
	}
	for _, role := range []string{"cls_token", "eos_token", "pad_token", "unk_token"} {
		if id, ok := r.tokenizer.ID(r.tokenizer.Role(role)); ok {
			r.m3.special = append(r.m3.special, id)
		}
	}
	r.modules = after(r.folder, o)
	if err := r.check(path, folder.Widths{folder.TokenEmbeddings: -1, folder.Scores: -1,
		folder.SentenceEmbedding: int(max(dense.Shape[1], 0))}); err != nil {
		return true, err
	}
	return true, nil
}

// weigh makes a sparse vector of the weights of a text's tokens: of a token that is there twice the greater one.
func (m *m3) weigh(ids []int64, weights []float32, vocabulary int) Sparse {
	s := Sparse{Width: vocabulary}
	best := map[int64]float32{}
	for t, id := range ids {
		if w := weights[t]; !(w <= best[id]) && !slices.Contains(m.special, id) { // NaN stays
			best[id] = w
		}
	}
	for _, id := range slices.Sorted(maps.Keys(best)) {
		s.Indices, s.Weights = append(s.Indices, int32(id)), append(s.Weights, best[id])
	}
	return s
}
