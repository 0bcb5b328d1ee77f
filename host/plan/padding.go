package plan

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/meaning/padding"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/plugin/capability"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Padding says what becomes of the tokens that a model's attention mask hides.
type Padding string

const (
	ExactPadding  Padding = ""       // they are not computed where the graph shows that no output depends on them
	IgnorePadding Padding = "ignore" // they are not computed; where they are outputs of the model, these are zeros there
	KeepPadding   Padding = "keep"   // they are computed as the model has it
)

// ParsePadding reads the names of session entries and flags.
func ParsePadding(text string) (Padding, error) {
	switch p := Padding(text); p {
	case IgnorePadding, KeepPadding:
		return p, nil
	case "exact":
		return ExactPadding, nil
	}
	return "", fmt.Errorf("%q is no way to treat padding, needed is exact, ignore or keep", text)
}

// Rows says which tokens a plan computes.
type Rows string

const (
	AllRows     Rows = ""        // all, as the model has it
	MaskedRows  Rows = "masked"  // all; attention has no mask of n x n, and passes over hidden keys
	VisibleRows Rows = "visible" // those that the mask shows
)

// Unpad lets attention run within each sequence: without hidden tokens where nothing of them can be seen or that was
// asked for, with them else. What each choice was before stands in it, for KeepPadding. The result is why hidden
// tokens are computed, or "".
func (p *Plan) Unpad(g *graph.Graph, shapes *graph.Shapes, f *padding.Facts, manifests []*manifest.Manifest,
	o Options) (why string) {
	rows := VisibleRows
	switch {
	case o.Padding == KeepPadding:
		return "that was asked for"
	case f.Blind && (f.First || f.Last):
		rows, why = MaskedRows, "a token that is read may be hidden, and see no visible key within its window"
	case o.Padding == IgnorePadding || f.Exact():
	case f.Rounds:
		rows, why = MaskedRows, "a scale is taken over all tokens, so that answers move within the noise of the model's "+
			"quantisation without hidden ones"
	default:
		rows, why = MaskedRows, fmt.Sprintf("the output %s holds a row for each of them", f.Outputs[0])
	}
	if rows == MaskedRows && f.Mixed {
		return why + ", and of those some see no visible key within their window"
	}
	if o.Device != nil {
		return "what leaves them out computes on the CPU alone"
	}
	if len(f.Blocks) == 0 {
		switch {
		case rows == MaskedRows:
			return why
		case o.Fixed != nil:
			return "the plan file does not remove it"
		case !o.QuantizationNoise && o.Padding != IgnorePadding && len(findRounds(g).at) > 0:
			return "a value is rounded to integers, which moves by the last digit of what is computed of fewer rows"
		}
	}
	m, attends := o.Provider(manifests, capability.PackedAttention)
	if m == nil {
		return o.lacksProvider(manifests, capability.PackedAttention)
	}
	var chosen []int
	var r *rounds
	for _, b := range f.Blocks {
		at := slices.IndexFunc(p.Choices, func(c Choice) bool { return c.Block == b.Block })
		if at < 0 {
			return b.Node + " was not considered"
		}
		if o.Fixed != nil && o.Fixed[b.Node] != attends.Name {
			return "the plan file does not remove it"
		}
		if t := model.TypeName(shapes.Of(b.Wiring.Query).DType); t != "float32" && t != "float16" {
			return fmt.Sprintf("%s is of %s, its operators take float32 and float16", b.Node, t)
		}
		if !o.QuantizationNoise && o.Padding != IgnorePadding {
			if r == nil {
				r = findRounds(g)
			}
			c := p.Choices[at]
			c.Operator = attends
			if why := r.reason(&c, false); why != "" {
				return why
			}
		}
		chosen = append(chosen, at)
	}
	for _, at := range chosen {
		c := &p.Choices[at]
		before := *c
		c.Kept = &before
		c.Plugin, c.Variant, c.Operator, c.Described = m.Name, o.variant(), attends, o.Described[m.Name]
		switch {
		case rows == MaskedRows:
			c.Reason = "attention without a mask of n x n; hidden tokens are computed, because " + why
		case f.Exact():
			c.Reason = "hidden tokens are not computed, and no output depends on them"
		default:
			c.Reason = "hidden tokens are not computed, as asked: outputs are zeros there"
		}
	}
	p.rows, p.packs = rows, m.Name
	return why
}

// Packs names the plugin that takes hidden tokens out; "" where Rows is AllRows.
func (p *Plan) Packs() string {
	if p.Rows() == AllRows {
		return ""
	}
	return p.packs
}

// Rows says which tokens are computed.
func (p *Plan) Rows() Rows {
	if p == nil || slices.ContainsFunc(p.Choices, func(c Choice) bool { return c.Kept != nil && c.Operator == nil }) {
		return AllRows
	}
	return p.rows
}

// KeepPadding returns to what was chosen before Unpad, but for choices that were left since.
func (p *Plan) KeepPadding() {
	if p == nil {
		return
	}
	for i, c := range p.Choices {
		if c.Kept != nil {
			p.Choices[i] = *c.Kept
			if c.Operator == nil {
				p.Choices[i].Leave(c.Reason)
			}
		}
	}
	p.rows = AllRows
}
