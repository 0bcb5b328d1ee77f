package prepare_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// A decoder that makes keys of the encoder's output in every step has the layers of one that is given them.
func TestKeysMadeInEveryStep(t *testing.T) {
	list := must.Value(find(small(t, "vit-gpt2")))(t)
	if len(list) != 2 || list[1].Layers.Type != "cross" || list[1].Layers.Layers != 2 || list[1].Layers.HeadSize != 12 {
		t.Errorf("%+v", list)
	}
}

// Where the decoder reads the encoder's output for anything else, or makes keys of more than it, it is refused.
func TestKeysMadeOfMore(t *testing.T) {
	node := func(op, out string, in ...string) *onnx.Node {
		return &onnx.Node{OpType: proto.String(op), Name: proto.String(out), Input: in, Output: []string{out}}
	}
	for name, edit := range map[string]func(*onnx.Graph){
		"the encoder's output in the last norm": func(g *onnx.Graph) {
			last := 0
			for i, n := range g.Node {
				if n.GetOpType() == "LayerNormalization" {
					last = i
				}
			}
			norm := g.Node[last]
			mean := node("ReduceMean", "mean", "encoder_hidden_states")
			mean.Attribute = []*onnx.Attribute{{Name: proto.String("keepdims"), Type: onnx.Attribute_INT.Enum(),
				I: proto.Int64(0)}}
			g.Node = slices.Insert(g.Node, last, mean, node("Add", "moved", norm.Input[0], "mean"))
			norm.Input[0] = "moved"
		},
		"tokens in the encoder's output": func(g *onnx.Graph) {
			for _, n := range g.Node {
				for i, in := range n.Input {
					if in == "encoder_hidden_states" {
						n.Input[i] = "moved"
					}
				}
			}
			to := node("Cast", "floats", "input_ids")
			to.Attribute = []*onnx.Attribute{{Name: proto.String("to"), Type: onnx.Attribute_INT.Enum(),
				I: proto.Int64(int64(onnx.Tensor_FLOAT))}}
			mean := node("ReduceMean", "mean", "floats")
			mean.Attribute = []*onnx.Attribute{{Name: proto.String("keepdims"), Type: onnx.Attribute_INT.Enum(),
				I: proto.Int64(0)}}
			g.Node = append([]*onnx.Node{to, mean, node("Add", "moved", "encoder_hidden_states", "mean")}, g.Node...)
		},
	} {
		folder := small(t, "vit-gpt2")
		must.Succeed(t, made(t, folder))
		edited(t, filepath.Join(folder, "decoder_with_past_model.onnx"), edit)
		err := made(t, folder)
		if err == nil || !strings.Contains(err.Error(), "decoder_with_past_model.onnx") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An input whose content lengths do not tell is no table of positions, and hides nothing.
func TestInputsThatNothingFeeds(t *testing.T) {
	folder := small(t, "gpt2")
	masked := small(t, "gpt2")
	edited(t, filepath.Join(masked, "model.onnx"), func(g *onnx.Graph) {
		for i, n := range g.Node {
			if n.GetOpType() == "Softmax" {
				g.Node = slices.Insert(g.Node, i,
					&onnx.Node{OpType: proto.String("ReduceMax"), Name: proto.String("loudest"),
						Input: []string{"past_key_values.0.key"}, Output: []string{"loudest"}},
					&onnx.Node{OpType: proto.String("Add"), Name: proto.String("louder"), Input: []string{n.Input[0], "loudest"},
						Output: []string{"louder"}})
				n.Input[0] = "louder"
				break
			}
		}
	})
	must.Fail(t, made(t, masked), "depends on what input past_key_values.0.key holds")
	edited(t, filepath.Join(folder, "model.onnx"), func(g *onnx.Graph) {
		last := 0
		for i, n := range g.Node {
			if n.GetOpType() == "LayerNormalization" {
				last = i
			}
		}
		norm := g.Node[last]
		g.Input = append(g.Input,
			&onnx.ValueInfo{Name: proto.String("volume"), Type: graph.TensorType(onnx.Tensor_FLOAT, "batch_size", 1, 1)})
		g.Node = slices.Insert(g.Node, last,
			&onnx.Node{OpType: proto.String("Mul"), Name: proto.String("louder"), Input: []string{norm.Input[0], "volume"},
				Output: []string{"louder"}})
		norm.Input[0] = "louder"
	})
	must.Fail(t, made(t, folder), "input volume is still read by Mul")
}
