package plan

import (
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/defaults"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/padding"
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

// Unpad lets attention run within each sequence, without hidden tokens, where that is allowed and the operators are there.
// Each choice keeps what was chosen before, for KeepPadding. The result is why that cannot be, or "".
func (p *Plan) Unpad(g *graph.Graph, shapes *graph.Shapes, f *padding.Facts, manifests []*manifest.Manifest, o Options) (why string) {
	switch {
	case o.Padding == KeepPadding:
		return "padding is kept, as asked"
	case o.Padding == ExactPadding && !f.Exact():
		if f.Rounds {
			return "a scale is taken over all tokens, so that answers move within the noise of the model's quantisation without hidden ones"
		}
		return fmt.Sprintf("the output %s holds a row for each hidden token", f.Outputs[0])
	case o.Device != nil:
		return "its operators are for the CPU"
	}
	operators := map[string]*manifest.Operator{}
	own := defaults.PackedAttention.Plugin
	i := slices.IndexFunc(manifests, func(m *manifest.Manifest) bool { return m.Name == own })
	if i < 0 {
		return fmt.Sprintf("the plugin %s is not loaded", own)
	}
	for j := range manifests[i].Operators {
		operators[manifests[i].Operators[j].Name] = &manifests[i].Operators[j]
	}
	for _, needed := range []defaults.Operator{defaults.RemovePadding, defaults.PackedAttention, defaults.RestorePadding} {
		if operators[needed.Name] == nil {
			return fmt.Sprintf("the plugin %s has no operator %s", own, needed.Name)
		}
	}
	if why := o.RulesOut(own); why != "" {
		return why
	}
	var chosen []int
	var r *rounds
	for _, b := range f.Blocks {
		at := slices.IndexFunc(p.Choices, func(c Choice) bool { return c.Block == b.Block })
		if at < 0 {
			return b.Node + " was not considered"
		}
		if o.Fixed != nil && o.Fixed[b.Node] != defaults.PackedAttention.Name {
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
			c.Operator = operators[defaults.PackedAttention.Name]
			if why := r.reason(&c); why != "" {
				return why
			}
		}
		chosen = append(chosen, at)
	}
	for _, at := range chosen {
		c := &p.Choices[at]
		before := *c
		c.Kept = &before
		c.Plugin, c.Variant, c.Operator, c.Described = own, o.variant(), operators[defaults.PackedAttention.Name], o.Described[own]
		c.Reason = "hidden tokens are not computed"
		if !f.Exact() {
			c.Reason += ", as asked"
		}
	}
	return ""
}

// Unpadded reports a plan in which no hidden token is computed.
func (p *Plan) Unpadded() bool {
	any := false
	for _, c := range p.Choices {
		if c.Kept != nil {
			if c.Operator == nil {
				return false
			}
			any = true
		}
	}
	return any
}

// KeepPadding returns to what was chosen before Unpad, but for choices that were left since.
func (p *Plan) KeepPadding() {
	for i, c := range p.Choices {
		if c.Kept != nil {
			p.Choices[i] = *c.Kept
			if c.Operator == nil {
				p.Choices[i].Leave(c.Reason)
			}
		}
	}
}
