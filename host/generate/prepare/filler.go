package prepare

import (
	"context"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/rewrite/engine"
	"github.com/opgraft/graft/host/session/patch"
)

// FillSlotMapping is the filler's input of slots (int32).
const FillSlotMapping = "graft.slot_mapping"

// filler makes the graph that computes what layers store of an encoder's output, from the
// decoder that is exported without a past, or the one that computes it in every step, and puts it into the cross
// pool. There is none where layers store nothing of their own.
func (gen *Generation) filler(ctx context.Context, o Options) error {
	type stored struct {
		engine.CrossLayer
		key, value string // where they come from; value is "" where rows of keys do alone
	}
	var layers []stored
	for _, layer := range gen.Interface.Layers {
		switch {
		case layer.Inputs == plan.Keys:
			layers = append(layers, stored{layer, layer.Rows, ""})
		case layer.Inputs == plan.PromptHiddenStates && gen.Choose != nil:
			layer.Strategy = plan.KeysValues // which stand beside it
			fallthrough
		case layer.Inputs == plan.KeysValues:
			layers = append(layers, stored{layer, layer.Key, layer.Value})
		}
	}
	if len(layers) == 0 {
		return nil
	}
	file, p, err := gen.Model.fills(ctx)
	if err != nil {
		return err
	}
	var made []*onnx.ValueInfo
	take := func(name string) {
		made = append(made, &onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(onnx.Tensor_FLOAT)})
	}
	for i := range layers {
		l := &layers[i]
		if l.value != "" {
			if l.key, err = gen.Model.source(ctx, l.key); err == nil {
				l.value, err = gen.Model.source(ctx, l.value)
			}
			if err != nil {
				return err
			}
			take(l.value)
		}
		take(l.key)
	}
	part, err := extract(p, made, nil)
	if err != nil {
		return err
	}
	g := part.Graph
	g.Input = append(g.Input,
		&onnx.ValueInfo{Name: proto.String(engine.CrossPool.Cache),
			Type: graph.TensorType(onnx.Tensor_FLOAT, "blocks", "floats")},
		&onnx.ValueInfo{Name: proto.String(FillSlotMapping), Type: graph.TensorType(onnx.Tensor_INT32, "slots")})
	g.Output = nil
	storage := gen.Storage.Whole()
	var with []string
	for i, layer := range layers {
		by, ok := o.Attention.Implementations.Store(layer.Strategy)
		if !ok {
			return fmt.Errorf("no plugin that is loaded stores what an encoder made for %s", layer.Strategy)
		}
		if !slices.Contains(with, by.Plugin) {
			with = append(with, by.Plugin)
		}
		done := fmt.Sprintf("graft.stored.%d", i)
		if layer.value == "" {
			g.Node = append(g.Node, storeKeys(by.Operator, layer.CrossLayer, layer.key, done, storage))
		} else {
			store := storeKeysAndValues(g, by.Operator, layer.CrossLayer, layer.key, layer.value, done)
			if o.Attention.Implementations.Candidate(layer.Strategy, storage).Rounds() {
				store.Attribute = append(store.Attribute, text("storage", string(storage)))
			}
			g.Node = append(g.Node, store)
		}
		g.Output = append(g.Output, &onnx.ValueInfo{Name: proto.String(done), Type: graph.TensorType(onnx.Tensor_INT32, 1)})
	}
	part.OpsetImport = append(part.OpsetImport[:len(part.OpsetImport):len(part.OpsetImport)],
		&onnx.OperatorSet{Domain: proto.String(manifest.Domain), Version: proto.Int64(1)})
	x, err := patch.View(ctx, file, part)
	if err != nil {
		return err
	}
	if gen.Filler, err = replace(ctx, x, o, nil, with...); err != nil {
		return err
	}
	gen.FillerLengths = encoderLengths(gen.Filler)
	return nil
}

// encoderLengths are the lengths of the filler's integer inputs: by input, for each axis
// the axis of the encoder's output (1, positions, width) that the graph takes it to be as
// long as, or -1. The graph may read lengths of the one from the other.
func encoderLengths(filler *Graph) map[string][]int {
	element := func(v *graph.Value) int32 { return v.Type.GetTensorType().GetElemType() }
	isOutput := func(v *graph.Value) bool {
		return element(v) == int32(onnx.Tensor_FLOAT) && v.Name != engine.CrossPool.Cache
	}
	at := slices.IndexFunc(filler.Inputs, isOutput)
	if at < 0 {
		return nil
	}
	output := filler.Shapes.Of(filler.Inputs[at]).Dims
	lengths := map[string][]int{}
	for _, in := range filler.Inputs {
		if element(in) != int32(onnx.Tensor_INT64) {
			continue
		}
		for _, d := range filler.Shapes.Of(in).Dims {
			lengths[in.Name] = append(lengths[in.Name], slices.IndexFunc(output, d.Equal))
		}
	}
	return lengths
}

// storeKeysAndValues puts keys and values of a layer into its area.
func storeKeysAndValues(g *onnx.Graph, operator string, l engine.CrossLayer, keyName, valueName,
	done string) *onnx.Node {
	key, keyLayout := untransposed(g, keyName)
	value, valueLayout := untransposed(g, valueName)
	return &onnx.Node{OpType: proto.String(operator), Domain: proto.String(manifest.Domain), Name: proto.String(done),
		Input:  []string{key, value, engine.CrossPool.Cache, FillSlotMapping},
		Output: []string{done}, Attribute: []*onnx.Attribute{
			text("key_layout", keyLayout), text("value_layout", valueLayout),
			integer("kv_num_heads", l.KVHeads), integer("head_size", l.HeadSize),
			integer("value_size", l.ValueSize), integer("offset", l.Offset)}}
}

// storeKeys puts keys of a layer into its area, heads side by side.
func storeKeys(operator string, l engine.CrossLayer, key, done string, storage plan.Storage) *onnx.Node {
	return &onnx.Node{OpType: proto.String(operator), Domain: proto.String(manifest.Domain), Name: proto.String(done),
		Input: []string{key, engine.CrossPool.Cache, FillSlotMapping}, Output: []string{done},
		Attribute: []*onnx.Attribute{integer("width", l.KVHeads*l.HeadSize), integer("offset", l.Offset),
			text("storage", string(storage))}}
}

// untransposed is a value as it was before heads were moved ahead of
// positions, with its layout: what stores it reads it either way.
func untransposed(g *onnx.Graph, name string) (from, layout string) {
	for _, n := range g.Node {
		if n.GetOpType() != "Transpose" || n.Output[0] != name {
			continue
		}
		for _, a := range n.Attribute {
			if a.GetName() == "perm" && slices.Equal(a.Ints, []int64{0, 2, 1, 3}) {
				return n.Input[0], "bshd"
			}
		}
	}
	return name, "bhsd"
}

func text(name, v string) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_STRING.Enum(), S: []byte(v)}
}

// integer is an attribute of a node.
func integer(name string, v int64) *onnx.Attribute {
	return &onnx.Attribute{Name: proto.String(name), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(v)}
}
