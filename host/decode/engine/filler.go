package engine

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/rewrite"
)

// fillWrite is the filler's input of slots.
const fillWrite = "graft.write"

// openFiller makes the session that computes what layers keep of an encoder's output,
// from the decoder that is exported without a past, and puts it into the cross pool.
// There is none where layers keep nothing of their own.
func (e *Engine) openFiller(path string, o Options) error {
	var made []*onnx.ValueInfo
	take := func(name string) string {
		made = append(made, &onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(onnx.Tensor_FLOAT)})
		return name
	}
	type stored struct {
		rewrite.CrossLayer
		key, value string
	}
	var layers []stored
	for _, layer := range e.face.Layers {
		switch {
		case layer.Keep == plan.KeepKeys:
			layers = append(layers, stored{layer, take(layer.Rows), ""})
		case layer.Keep == plan.KeepKeysAndValues, layer.Keep == plan.KeepLatent && e.choose != nil:
			layers = append(layers, stored{layer, take(present(layer.Key)), take(present(layer.Value))})
		}
	}
	if len(layers) == 0 {
		return nil
	}
	m, err := model.Open(path)
	if err != nil {
		return err
	}
	defer m.Close()
	p := m.Proto()
	if err := takeBranch(p, false); err != nil {
		return err
	}
	part, err := extract(p, made, nil)
	if err != nil {
		return err
	}
	g := part.Graph
	g.Input = append(g.Input,
		&onnx.ValueInfo{Name: proto.String(rewrite.CrossPool.Cache), Type: graph.TensorType(onnx.Tensor_FLOAT, "blocks", "floats")},
		&onnx.ValueInfo{Name: proto.String(fillWrite), Type: graph.TensorType(onnx.Tensor_INT32, "slots")})
	g.Output = nil
	storage := e.storage
	if storage == "" {
		storage = plan.Float32
	}
	for i, layer := range layers {
		done := fmt.Sprintf("graft.stored.%d", i)
		n := storeKeysAndValues
		if layer.value == "" {
			n = storeKeys
		}
		g.Node = append(g.Node, n(g, layer.CrossLayer, layer.key, layer.value, done, storage)...)
		g.Output = append(g.Output, &onnx.ValueInfo{Name: proto.String(done), Type: graph.TensorType(onnx.Tensor_INT32, 1)})
	}
	part.OpsetImport = append(part.OpsetImport[:len(part.OpsetImport):len(part.OpsetImport)],
		&onnx.OperatorSet{Domain: proto.String(plugin.Domain), Version: proto.Int64(1)})
	p.Graph, p.OpsetImport = g, part.OpsetImport
	with := e.face.Plugins
	if slices.ContainsFunc(layers, func(s stored) bool { return s.value == "" }) {
		p, err := withRows(o.Plugins.Plugins)
		if err != nil {
			return err
		}
		with = append(slices.Clone(with), p.Manifest.Name)
	}
	e.filler, err = newSession(m, o, nil, with...)
	return err
}

// present is the output that a past comes from.
func present(past string) string {
	return "present" + strings.TrimPrefix(past, "past_key_values")
}

// storeKeysAndValues puts keys and values of a layer into its area.
func storeKeysAndValues(g *onnx.Graph, l rewrite.CrossLayer, keyName, valueName, done string, _ plan.Storage) []*onnx.Node {
	key, keyLayout := untransposed(g, keyName)
	value, valueLayout := untransposed(g, valueName)
	return []*onnx.Node{{OpType: proto.String("StoreCache"), Domain: proto.String(plugin.Domain), Name: proto.String(done),
		Input:  []string{key, value, rewrite.CrossPool.Cache, fillWrite},
		Output: []string{done}, Attribute: []*onnx.Attribute{
			text("key_layout", keyLayout), text("value_layout", valueLayout),
			integer("kv_num_heads", l.KVHeads), integer("head_size", l.HeadSize),
			integer("value_size", l.ValueSize), integer("offset", l.Offset)}}}
}

// storeKeys puts keys of a layer into its area, heads side by side.
func storeKeys(_ *onnx.Graph, l rewrite.CrossLayer, key, _, done string, storage plan.Storage) []*onnx.Node {
	return []*onnx.Node{{OpType: proto.String(storeRows), Domain: proto.String(plugin.Domain), Name: proto.String(done),
		Input: []string{key, rewrite.CrossPool.Cache, fillWrite}, Output: []string{done},
		Attribute: []*onnx.Attribute{integer("width", l.KVHeads*l.HeadSize), integer("offset", l.Offset), text("storage", string(storage))}}}
}

// untransposed is a value as it was before heads were moved in front of
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

// fillCross computes keys and values of an encoder's output (1, positions, width)
// into the slots.
func (e *Engine) fillCross(ctx context.Context, hidden *ort.Value, slots []int32) error {
	f := &feeder{library: e.library, values: map[string]*ort.Value{rewrite.CrossPool.Cache: e.cross.tensor}}
	defer f.close()
	add(f, fillWrite, slots, int64(len(slots)))
	for _, info := range e.filler.Inputs() {
		switch {
		case f.values[info.Name] != nil:
		case info.Element == ort.Float32:
			f.values[info.Name] = hidden
		default:
			// Lengths of tokens or of masks that the graph reads and nothing stored depends on.
			add(f, info.Name, []int64{1}, 1, 1)
		}
	}
	if f.err != nil {
		return f.err
	}
	results, err := e.filler.Run(ctx, f.values)
	if err != nil {
		return err
	}
	for _, v := range results {
		v.Close()
	}
	return nil
}
