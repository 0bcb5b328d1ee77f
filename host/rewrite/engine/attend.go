package engine

import (
	"errors"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// put puts the operator of a layer in place.
func (s *builder) put(l *Layer, c *crossing) error {
	s.engine.Strategies = append(s.engine.Strategies, l.Report(s.Implementations))
	if l.block.Attention.Type == "cross" {
		switch {
		case l.first || l.inputs == plan.Keys:
			return c.keys(l)
		case l.inputs == plan.FirstLayerKeys:
			return c.hybrid(l)
		case l.inputs == plan.PromptHiddenStates:
			return c.encoder(l)
		}
		return c.keysValues(l)
	}
	switch l.inputs {
	case plan.Keys:
		return s.selfKeys(l)
	case plan.HiddenStates:
		return s.selfInputs(l)
	case plan.PromptHiddenStates:
		return s.selfPrompt(l)
	}
	return s.selfKeysValues(l)
}

// pool gives the inputs of a pool: its memory, sequence descriptors and shared slots.
func (s *builder) pool(p PoolInputs) (list [3]*graph.Value, err error) {
	for i, in := range []struct {
		name string
		kind onnx.Tensor_DataType
		dims []any
	}{
		{p.Cache, onnx.Tensor_FLOAT, []any{p.Cache + ".blocks", p.Cache + ".floats"}},
		{p.Sequences, onnx.Tensor_INT32, []any{p.Sequences + ".groups", abi.SequenceColumns}},
		{p.SharedSlots, onnx.Tensor_INT32, []any{p.SharedSlots + ".slots"}},
	} {
		if list[i], err = s.input(in.name, in.kind, in.dims...); err != nil {
			return list, err
		}
	}
	return list, nil
}

// poolOperands are what operators of self attention read beside queries, keys and values.
type poolOperands struct {
	cache, sequences, sharedSlots, privateSlots, slotMapping *graph.Value
	bias                                                     *graph.Value // nil where nothing is added to scores
}

func (s *builder) operandsOf(b *blocks.Block) (f poolOperands, err error) {
	if f.bias, err = s.bias(b); err != nil {
		return f, err
	}
	p, err := s.pool(SelfPool)
	if err != nil {
		return f, err
	}
	f.cache, f.sequences, f.sharedSlots = p[0], p[1], p[2]
	if f.privateSlots, err = s.input(SelfPool.PrivateSlots, onnx.Tensor_INT32,
		SelfPool.PrivateSlots+".slots"); err != nil {
		return f, err
	}
	f.slotMapping, err = s.input(SelfPool.SlotMapping, onnx.Tensor_INT32, rowsSymbol)
	return f, err
}

// area takes room for a layer in the blocks of a pool and returns where it begins.
func area(pool *int64, floats int64) int64 {
	offset := *pool
	*pool += floats
	return offset
}

// area takes room for a layer's strategy in the blocks of a pool and returns where it begins.
func (s *builder) area(pool *int64, strategy plan.Strategy, a *blocks.Attention, width int64) int64 {
	return area(pool, s.Implementations.Candidate(strategy, s.Storage).Area(one(a, width)))
}

// one is a layer as plans know it.
func one(a *blocks.Attention, width int64) plan.Layers {
	return plan.Layers{Type: a.Type, Layers: 1, Heads: a.Heads, KVHeads: a.KVHeads, HeadSize: a.HeadSize,
		ValueSize: a.ValueSize, Width: width}
}

// rows are the attributes of operators over rows.
func (s *builder) rows(offset int64) []any {
	return []any{"offset", offset, "storage", string(s.Storage.Whole())}
}

// overKeysValues are the attributes of operators over keys and values. Those of a strategy that a manifest declares
// may have no storage.
func (s *builder) overKeysValues(strategy plan.Strategy, kvHeads, offset int64) []any {
	list := []any{"kv_num_heads", kvHeads, "offset", offset}
	if c := s.Implementations.Candidate(strategy, s.Storage); c.Rounds() {
		list = append(list, "storage", string(c.Storage))
	}
	return list
}

// beside are the attributes of keys and values that stand beside rows, with an area of their own.
func (s *builder) beside(pool *int64, a *blocks.Attention) []any {
	list := []any{"kv_offset",
		area(pool, plan.Candidate{Strategy: plan.PromptHiddenStates, Storage: s.Storage}.BesideArea(one(a, 0)))}
	if s.Storage.Rounds() {
		list = append(list, "kv_storage", string(s.Storage))
	}
	return list
}

// attend adds an operator and lets its output stand for the block's. Attributes are
// name, value pairs beside those that every operator over a pool has.
func (s *builder) attend(b *blocks.Block, strategy plan.Strategy, ins []*graph.Value, attributes ...any) error {
	a, w := b.Attention, b.Wiring
	if w.HeadScale != nil {
		return errors.New("its scores are scaled by a factor for each head")
	}
	for len(ins) > 0 && ins[len(ins)-1] == nil {
		ins = ins[:len(ins)-1]
	}
	window := int64(0)
	if a.Type != "cross" {
		window = s.windowOf(b)
	}
	attributes = append(attributes, "num_heads", a.Heads, "head_size", a.HeadSize, "value_size", a.ValueSize,
		"scale", w.Scale, "softcap", a.Softcap, "window", window, "output_layout", plan.Operand(w.OutputLayout),
		"output_rank", w.OutputRank)
	outputs := []string{s.Graph.FreshName("graft_attention")}
	if s.signature(strategy) == plan.Keys && s.Skip > 0 {
		attributes = append(attributes, "skip", s.Skip)
		outputs = append(outputs, s.Graph.FreshName("graft.skipped"))
	}
	by := s.Implementations.Of(strategy)
	if !slices.Contains(s.engine.Plugins, by.Plugin) {
		s.engine.Plugins = append(s.engine.Plugins, by.Plugin)
	}
	n, err := s.AddNode(s.Graph, manifest.Domain, by.Operator, ins, outputs, attributes...)
	if err != nil {
		return err
	}
	if len(n.Out) > 1 {
		s.Graph.AddOutput(n.Out[1], graph.TensorType(onnx.Tensor_FLOAT, rowsSymbol, int(a.Heads)))
		s.engine.Skipped = append(s.engine.Skipped, n.Out[1].Name)
	}
	result := n.Out[0]
	if w.Filled > 0 {
		if result, err = s.Fill(result, w.OutputRank, w.Filled); err != nil {
			return err
		}
	}
	s.Replace(w.Output, result)
	heads, size := int(a.Heads), int(a.ValueSize)
	dims := []any{rowsSymbol, heads, 1, size}
	switch {
	case w.OutputRank == 3:
		dims = []any{rowsSymbol, 1, heads * size}
	case plan.Operand(w.OutputLayout) == "bshd":
		dims = []any{rowsSymbol, 1, heads, size}
	}
	s.attended = append(s.attended,
		&onnx.ValueInfo{Name: proto.String(n.Out[0].Name), Type: graph.TensorType(onnx.Tensor_FLOAT, dims...)})
	return nil
}

// selfKeysValues stores keys and values.
func (s *builder) selfKeysValues(l *Layer) error {
	b := l.block
	a, w := b.Attention, b.Wiring
	// Packed, the query holds keys and values too.
	if !w.Packed && (w.Key == nil || w.Value == nil) {
		return errors.New("it has no new keys and values")
	}
	f, err := s.operandsOf(b)
	if err != nil {
		return err
	}
	ins := []*graph.Value{s.Current(w.Query), nil, nil, f.cache, f.sequences, f.sharedSlots, f.privateSlots, f.slotMapping,
		f.bias, w.Sinks}
	if !w.Packed {
		ins[1], ins[2] = s.Current(w.Key), s.Current(w.Value)
	}
	return s.attend(b, l.Strategy, ins,
		s.overKeysValues(l.Strategy, a.KVHeads, s.area(&s.engine.Self, l.Strategy, a, plan.WidthOf(a)))...)
}

// selfInputs stores what keys and values are projected from.
func (s *builder) selfInputs(l *Layer) error {
	b, from := l.block, l.from
	a := b.Attention
	weights, err := s.weights(l)
	if err != nil {
		return err
	}
	query, err := s.queryOf(b)
	if err != nil {
		return err
	}
	f, err := s.operandsOf(b)
	if err != nil {
		return err
	}
	ins := []*graph.Value{query, f.cache, f.sequences, f.sharedSlots, weights[0], weights[1], s.seenBias(b, from.key),
		s.row(from.value.Bias),
		f.bias, f.privateSlots, s.Current(from.input), f.slotMapping}
	return s.attend(b, l.Strategy, ins, append(s.rows(s.area(&s.engine.Self, l.Strategy, a, from.key.Inputs)),
		"kv_num_heads", a.KVHeads, "width", from.key.Inputs)...)
}

// selfPrompt stores the inputs of a prompt, and keys and values of what follows it.
func (s *builder) selfPrompt(l *Layer) error {
	b, from := l.block, l.from
	a, w := b.Attention, b.Wiring
	weights, err := s.weights(l)
	if err != nil {
		return err
	}
	prompt, err := s.pool(PromptPool)
	if err != nil {
		return err
	}
	promptWrite, err := s.input(PromptPool.SlotMapping, onnx.Tensor_INT32, rowsSymbol)
	if err != nil {
		return err
	}
	f, err := s.operandsOf(b)
	if err != nil {
		return err
	}
	ins := []*graph.Value{s.Current(w.Query), prompt[0], prompt[1], prompt[2], weights[0], weights[1],
		s.row(from.key.Bias), s.row(from.value.Bias), f.bias, nil, s.Current(from.input), promptWrite,
		nil, nil, f.cache, f.sequences, f.sharedSlots, f.privateSlots, f.slotMapping}
	if !w.Packed {
		ins[12], ins[13] = s.Current(w.Key), s.Current(w.Value)
	}
	attributes := append(s.rows(s.area(&s.engine.Prompt, l.Strategy, a, from.key.Inputs)), "kv_num_heads", a.KVHeads,
		"width", from.key.Inputs)
	return s.attend(b, l.Strategy, ins, append(attributes, s.beside(&s.engine.Self, a)...)...)
}

// selfKeys stores keys alone.
func (s *builder) selfKeys(l *Layer) error {
	b := l.block
	a := b.Attention
	rotary, err := s.rotary(b)
	if err != nil {
		return err
	}
	weights, err := s.weights(l)
	if err != nil {
		return err
	}
	query, key, err := s.queryAndKey(b, seesKeyBias(a))
	if err != nil {
		return err
	}
	f, err := s.operandsOf(b)
	if err != nil {
		return err
	}
	ins := []*graph.Value{query, f.cache, f.sequences, f.sharedSlots, weights[0], weights[1], f.bias, f.privateSlots, key,
		f.slotMapping}
	attributes := s.rows(s.area(&s.engine.Self, l.Strategy, a, l.from.key.Inputs))
	if rotary != nil {
		ins = append(ins, rotary.cos, rotary.sin)
		attributes = append(attributes, "rotary", rotary.style)
	}
	return s.attend(b, l.Strategy, ins, attributes...)
}

// seesKeyBias reports attention whose result a bias of keys changes: it adds the same to
// all scores of a query, which a softmax does not see, unless keys are turned or scores
// bent in between.
func seesKeyBias(a *blocks.Attention) bool { return a.Positions == "rotary" || a.Softcap != 0 }

// attends reports an operator over a pool.
func attends(n *graph.Node) bool {
	return slices.ContainsFunc(n.In, func(v *graph.Value) bool {
		return v != nil && v.IsInput && slices.ContainsFunc(pools, func(p PoolInputs) bool { return v.Name == p.Cache })
	})
}
