package generations

import (
	"strings"
	"testing"

	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// What a side's name says of drafts is its last part, and is read before anything is opened.
func TestDraftsOf(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		name, base, from string
		kind             search.Draft
		weights          string // of the draft model
	}{
		{"auto", "auto", "", search.DraftNone, "float32"},
		{"draft=lookup", "auto", "lookup", search.DraftLookup, "float32"},
		{"keys+draft=none", "keys", "none", search.DraftNone, "float32"},
		{"weights=int8,group=64+draft=lookup", "weights=int8,group=64", "lookup", search.DraftLookup, "float32"},
		{"keys+weights=int8+draft=" + dir + ",weights=int4,logits=int8", "keys+weights=int8",
			dir + ",weights=int4,logits=int8", search.DraftModel, "int4,logits=int8,group=32,activations=int8"},
	} {
		base, d, err := draftsOf(c.name)
		if err != nil || base != c.base || d.from != c.from || d.kind != c.kind || d.model.Weights.String() != c.weights ||
			(d.model.Folder == dir) != (c.kind == search.DraftModel) {
			t.Errorf("%s is %q with %+v, %v", c.name, base, d, err)
		}
	}
	for name, says := range map[string]string{
		"none+draft=lookup":                  "the model as exported verifies no drafts",
		"draft=" + dir + "/none":             "found no folder of this name",
		"draft=" + dir + ",weights=int8,x=1": `"x=1" is not understood`,
		"draft=":                             "found no folder of this name",
	} {
		if _, _, err := draftsOf(name); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want an error that says %s", name, err, says)
		}
	}
}

// TestSidesWithDrafts: the tokens of sides with drafts are those of the side without, and what the drafts came to is
// in the result.
func TestSidesWithDrafts(t *testing.T) {
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	const model = "../../../../models/g2p"
	r := must.Value(CompareAll(t.Context(), l, set, model,
		Options{A: "auto", B: "draft=lookup", Others: []string{"draft=" + model + ",weights=int8"},
			Search: []byte(`{"max_new_tokens": 30, "min_new_tokens": 30}`), Batch: 2, PromptLength: 8, Rounds: 1,
			CacheBytes: 64 << 20}))(t)
	if !r.OK() || r.A.Drafts != nil || r.Sides[0].StepFloor != nil {
		t.Errorf("%+v", r)
	}
	for i := range r.Sides {
		d := r.Sides[i].Drafts
		if d == nil || d.Steps+d.Accepted != 3*2*30 || d.AcceptedPerStep != float64(d.Accepted)/float64(d.Steps) ||
			(d.Model != nil) != (i == 1) {
			t.Errorf("%s: %+v", r.Sides[i].Name, d)
		}
	}
}
