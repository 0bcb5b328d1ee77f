package generations

import (
	"fmt"
	"strings"

	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/generate/search"
)

// Drafts say what a side's drafts came to, in all its generations together.
type Drafts struct {
	From     string `json:"from"`     // as the side's name says
	Steps    int    `json:"steps"`    // of the requests, added up
	Drafted  int    `json:"drafted"`  // positions that were drafted, and of them those that were chosen
	Accepted int    `json:"accepted"` // each is a step less
	// AcceptedPerStep is how many drafted positions a step gave beside its own, on average.
	AcceptedPerStep float64 `json:"accepted_per_step"`
	// Model says what a draft model did; nil where drafts are looked up.
	Model *decode.DraftReport `json:"model,omitempty"`
}

// draftPart begins what a side's name says of drafts, which is its last part.
const draftPart = "+draft="

// asked is what a side's name asks for: drafts from somewhere, "" for none.
type asked struct {
	from  string
	kind  search.Draft
	model decode.DraftModel
}

// draftsOf is what a side's name says of drafts, and what is left of it.
func draftsOf(name string) (base string, d asked, err error) {
	base, from, ok := strings.Cut(name, draftPart)
	if !ok {
		if from, ok = strings.CutPrefix(name, draftPart[1:]); !ok {
			return name, d, nil
		}
		base = "auto"
	}
	if base == "none" {
		return "", d, fmt.Errorf("the model as exported verifies no drafts; needed is draft=%s, or the engine's attention "+
			"before it", from)
	}
	switch d.from = from; from {
	case search.DraftNone.String():
	case search.DraftLookup.String():
		d.kind = search.DraftLookup
	default:
		if d.model, err = decode.ParseDraftModel(from); err != nil {
			return "", d, err
		}
		d.kind = search.DraftModel
	}
	return base, d, nil
}

// count adds what became of a request.
func (d *Drafts) count(out decode.Output) {
	d.Steps, d.Drafted, d.Accepted = d.Steps+out.Steps, d.Drafted+out.Drafted, d.Accepted+out.Accepted
	d.AcceptedPerStep = float64(d.Accepted) / float64(max(d.Steps, 1))
}
