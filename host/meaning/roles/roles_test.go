package roles_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/blocks/blockstest"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/models"
)

// found decides the roles of a fixture after an edit.
func found(t *testing.T, exporter, name string, edit func(*onnx.Model)) (*graph.Graph, *roles.Roles) {
	t.Helper()
	f := must.Value(models.Lookup(exporter, name))(t)
	b := must.Value(f.Bytes(1))(t)
	m := must.Value(model.Parse(b, ""))(t)
	t.Cleanup(func() { m.Close() })
	if edit != nil {
		edit(m.Proto())
	}
	g := must.Value(graph.New(m.Proto(), m))(t)
	shapes := graph.Infer(g)
	return g, roles.Find(g, shapes, blocks.Find(g, shapes))
}

// said is an input's role with what its axes count: "past: batch - past -".
func said(r *roles.Roles, v *graph.Value, rank int) string {
	axes := make([]string, rank)
	for i := range axes {
		if axes[i] = string(r.Axis(v, i).Length); axes[i] == "" {
			axes[i] = "-"
		}
	}
	return strings.TrimSpace(fmt.Sprintf("%s: %s", r.Of(v), strings.Join(axes, " ")))
}

// renamed gives the axes of all inputs other names.
func renamed(name func(input string, axis int, was string) string) func(*onnx.Model) {
	return func(p *onnx.Model) {
		for _, v := range p.Graph.Input {
			for i, d := range v.GetType().GetTensorType().GetShape().GetDim() {
				was := d.GetDimParam()
				if was == "" {
					continue
				}
				if to := name(v.GetName(), i, was); to != "" {
					d.Value = &onnx.Shape_Dim_DimParam{DimParam: to}
				} else {
					d.Value = nil
				}
			}
		}
	}
}

// What the inputs of exported models hold does not depend on what their axes are called.
func TestRolesOfFixtures(t *testing.T) {
	names := map[string]func(*onnx.Model){
		"honest":  nil,
		"dropped": renamed(func(string, int, string) string { return "" }),
		"merged":  renamed(func(string, int, string) string { return "batch" }),
		"lying": renamed(func(_ string, axis int, was string) string {
			return map[bool]string{true: "past_sequence_length", false: "batch_size"}[axis == 0]
		}),
	}
	for _, c := range []struct {
		exporter, name string
		past           bool
		inputs         map[string]string
	}{
		{"optimum", "bert", false, map[string]string{
			"input_ids": "tokens: batch new", "attention_mask": "mask: batch new", "token_type_ids": "types: batch new"}},
		{"optimum", "gpt2", true, map[string]string{
			"input_ids": "tokens: batch new", "past_key_values.0.key": "past: batch - past -",
			"past_key_values.0.value": "past: batch - past -",
			"attention_mask":          "mask: batch total", "position_ids": "positions: batch new"}},
		{"optimum", "bart-decoder-with-past", true, map[string]string{
			"input_ids": "tokens: batch new", "past_key_values.0.decoder.key": "past: batch - past -",
			"past_key_values.0.encoder.key": "encoder past: batch - encoder -",
			"encoder_attention_mask":        "mask: batch encoder"}},
		{"optimum", "t5-decoder", false, map[string]string{
			"input_ids": "tokens: batch new", "encoder_hidden_states": "encoder output: batch encoder -",
			"encoder_attention_mask": "mask: batch encoder"}},
	} {
		for lie, edit := range names {
			t.Run(c.exporter+"/"+c.name+"/"+lie, func(t *testing.T) {
				g, r := found(t, c.exporter, c.name, edit)
				must.Equal(t, r.HasPast, c.past)
				for _, v := range g.Inputs {
					want, ok := c.inputs[v.Name]
					if !ok {
						continue
					}
					must.Equal(t, said(r, v, len(v.Claims())), want, v.Name)
				}
			})
		}
	}
}

// Input names decide where the graph says nothing, and only there.
func TestNames(t *testing.T) {
	for name, want := range map[string]roles.Input{
		"input_ids": roles.Tokens, "decoder_input_ids": roles.Tokens, "attention_mask": roles.Mask,
		"position_ids":   roles.Positions,
		"token_type_ids": roles.Types, "past_key_values.0.key": roles.Past,
		"past_key_values.0.encoder.key": roles.EncoderPast,
		"use_cache_branch":              roles.UseCacheBranch, "seqlens_k": roles.KeyLengths, "pixel_values": roles.Other,
	} {
		must.Equal(t, roles.ByName(name), want, name)
	}
	for name, want := range map[string]roles.Length{
		"batch_size": roles.Batch, "past_sequence_length": roles.Cached, "encoder_sequence_length": roles.Encoder,
		"total_sequence_length": roles.All, "past_sequence_length + 1": roles.Unknown, "sequence_length": roles.Unknown,
	} {
		must.Equal(t, roles.Named(name), want, name)
	}
}

// The names of inputs may lie too: tokens index the largest table whatever they are called.
func TestInputsUnderOtherNames(t *testing.T) {
	rename := map[string]string{"input_ids": "x", "token_type_ids": "y", "attention_mask": "z"}
	g, r := found(t, "optimum", "bert", func(p *onnx.Model) {
		for _, v := range p.Graph.Input {
			if to := rename[v.GetName()]; to != "" {
				for _, n := range p.Graph.Node {
					for i, in := range n.Input {
						if in == v.GetName() {
							n.Input[i] = to
						}
					}
				}
				v.Name = &to
			}
		}
	})
	want := map[string]roles.Input{"x": roles.Tokens, "y": roles.Types, "z": roles.Mask}
	for _, v := range g.Inputs {
		must.Equal(t, r.Of(v), want[v.Name])
	}
}

// TestMaskOfKeysThatGrow: a mask counts past and new tokens where keys alone are joined with a cache, and values with
// one of theirs before they are parted.
func TestMaskOfKeysThatGrow(t *testing.T) {
	g, s := blockstest.Graph(t, `
		in mask f32[b, 1, 1, a]
		in x f32[b, 2, n, 16]
		in past_key f32[b, 2, p, 16]
		in past_value f32[b, 2, p, 16]
		out y f32[b, 2, n, 16]
		q = Neg(x)
		k = Abs(x)
		keys = Concat(past_key, k) axis=2
		values = Concat(past_value, x) axis=2
		one, other = Split(values) axis=1 num_outputs=2
		v = Tile(one, [1,2,1,1])
		kt = Transpose(keys) perm=0,1,3,2
		scores = MatMul(q, kt)
		masked = Add(scores, mask)
		weights = Softmax(masked)
		y = MatMul(weights, v)`)
	r := roles.Find(g, s, blocks.Find(g, s))
	must.Equal(t, said(r, g.Inputs[0], 4), "mask: batch - new total")
}
