package rewrite

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/abi"
	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
)

// Served says what serves one layer of attention, and why not what was asked for.
type Served struct {
	Node   string    `json:"node"`
	Type   string    `json:"type"` // "self" or "cross"
	Keep   plan.Keep `json:"keeps"`
	Plugin string    `json:"plugin"`
	Reason string    `json:"reason,omitempty"`
}

// refuse says why a layer cannot keep what it was asked to. It keeps something else
// then.
func refuse(format string, args ...any) error {
	return &plugin.Error{Kind: plugin.ErrRefused, Found: fmt.Sprintf(format, args...)}
}

// refusal is the reason of a refusal, or false for other errors.
func refusal(err error) (string, bool) {
	var refused *plugin.Error
	if errors.As(err, &refused) && errors.Is(refused.Kind, plugin.ErrRefused) {
		return refused.Found, true
	}
	return "", false
}

// keeper puts an operator in place of a block, or refuses before it has changed
// anything.
type keeper func(b *blocks.Block) error

// keepers are the ways of keeping that a kind of attention has. Each but the last
// names the one that is tried when it refuses.
type keepers map[plan.Keep]struct {
	put     keeper
	instead plan.Keep
}

// serve puts the operator in place that was asked for, or what stands in for it.
func (s *stateful) serve(b *blocks.Block, keep plan.Keep, list keepers) error {
	reasons := ""
	if _, ok := list[keep]; !ok {
		keep = plan.KeepKeysAndValues
	}
	for {
		err := list[keep].put(b)
		why, refused := refusal(err)
		if err == nil {
			s.engine.Served = append(s.engine.Served, Served{b.Node, b.Attention.Type, keep, s.options.Servers.Of(keep).Plugin, reasons})
			return nil
		}
		if !refused {
			return err
		}
		if reasons != "" {
			reasons += "; "
		}
		reasons += fmt.Sprintf("%s: %s", keep, why)
		keep = list[keep].instead
	}
}

// selfKeeper serves blocks of self attention.
func (s *stateful) selfKeeper(list []*blocks.Block) keeper {
	ways := keepers{
		plan.KeepKeysAndValues: {put: s.selfKeysValues},
		plan.KeepKeys:          {s.selfKeys, plan.KeepInputs},
		plan.KeepInputs:        {s.selfInputs, plan.KeepKeysAndValues},
		plan.KeepLatent:        {(&prompts{stateful: s, list: list}).put, plan.KeepKeysAndValues},
	}
	return func(b *blocks.Block) error { return s.serve(b, s.options.Self, ways) }
}

// prompts puts the operators over inputs of prompts. A prompt lies in one pool for all
// layers, so it is all of them or none.
type prompts struct {
	*stateful
	list    []*blocks.Block
	asked   bool
	refused error // why it is none
}

func (p *prompts) put(b *blocks.Block) error {
	if !p.asked {
		p.asked = true
		for _, other := range p.list {
			_, err := p.sources(other)
			if why, refused := refusal(err); refused {
				p.refused = refuse("%s: %s", other.Node, why)
				break
			} else if err != nil {
				return err
			}
		}
	}
	if p.refused != nil {
		return p.refused
	}
	err := p.selfPrompt(b)
	if why, refused := refusal(err); refused {
		if p.engine.Prompt > 0 {
			return fmt.Errorf("it cannot keep inputs of a prompt, which layers before it do: %s", why)
		}
		p.refused = err
	}
	return err
}

// pool gives the inputs cache, steps and shared of a pool.
func (s *stateful) pool(p PoolInputs) (list [3]*graph.Value, err error) {
	for i, in := range []struct {
		name string
		kind onnx.Tensor_DataType
		dims []any
	}{
		{p.Cache, onnx.Tensor_FLOAT, []any{p.Cache + ".blocks", p.Cache + ".floats"}},
		{p.Steps, onnx.Tensor_INT32, []any{p.Steps + ".groups", abi.SequenceColumns}},
		{p.Shared, onnx.Tensor_INT32, []any{p.Shared + ".slots"}},
	} {
		if list[i], err = s.input(in.name, in.kind, in.dims...); err != nil {
			return list, err
		}
	}
	return list, nil
}

// face is what operators of self attention read beside queries, keys and values.
type face struct {
	cache, steps, shared, own, write *graph.Value
	bias                             *graph.Value // nil where nothing is added to scores
}

func (s *stateful) selfFace(b *blocks.Block) (f face, err error) {
	if f.bias, err = s.bias(b); err != nil {
		return f, err
	}
	p, err := s.pool(SelfPool)
	if err != nil {
		return f, err
	}
	f.cache, f.steps, f.shared = p[0], p[1], p[2]
	if f.own, err = s.input(SelfPool.Own, onnx.Tensor_INT32, SelfPool.Own+".slots"); err != nil {
		return f, err
	}
	f.write, err = s.input(SelfPool.Write, onnx.Tensor_INT32, rowsSymbol)
	return f, err
}

// area takes room for a layer in the blocks of a pool and returns where it begins.
func area(pool *int64, floats int64) int64 {
	offset := *pool
	*pool += floats
	return offset
}

// rowFloats is the size of a block's area of rows.
func (s *stateful) rowFloats(width int64) int64 {
	return RowFloats(width, s.options.Storage)
}

// RowFloats is the size, in floats, of a block's area of rows of a width.
func RowFloats(width int64, storage plan.Storage) int64 {
	return abi.CacheRowArea(width, storage.Bytes())
}

// rows are the attributes of operators over rows.
func (s *stateful) rows(offset int64) []any {
	storage := s.options.Storage
	if storage == "" {
		storage = plan.Float32
	}
	return []any{"offset", offset, "storage", string(storage)}
}

func keysValuesFloats(a *blocks.Attention) int64 {
	return abi.CacheKVArea(a.KVHeads, a.HeadSize, a.ValueSize)
}

// attend adds an operator and lets its output stand for the block's. Attributes are
// name, value pairs beside those that every operator over a pool has.
func (s *stateful) attend(b *blocks.Block, keep plan.Keep, ins []*graph.Value, attributes ...any) error {
	a, w := b.Attention, b.Wiring
	for len(ins) > 0 && ins[len(ins)-1] == nil {
		ins = ins[:len(ins)-1]
	}
	window := int64(0)
	if a.Type != "cross" {
		window = max(a.Window, w.Window)
	}
	attributes = append(attributes, "num_heads", a.Heads, "head_size", a.HeadSize, "value_size", a.ValueSize,
		"scale", w.Scale, "softcap", a.Softcap, "window", window, "output_layout", operand(w.OutputLayout), "output_rank", w.OutputRank)
	outputs := []string{s.main.FreshName("graft_attention")}
	if keep == plan.KeepKeys && s.options.Skip > 0 {
		attributes = append(attributes, "skip", s.options.Skip)
		outputs = append(outputs, s.main.FreshName("graft.skipped"))
	}
	server := s.options.Servers.Of(keep)
	if !slices.Contains(s.engine.Plugins, server.Plugin) {
		s.engine.Plugins = append(s.engine.Plugins, server.Plugin)
	}
	n, err := s.node(s.main, plugin.Domain, server.Operator, ins, outputs, attributes...)
	if err != nil {
		return err
	}
	if len(n.Out) > 1 {
		s.main.AddOutput(n.Out[1], graph.TensorType(onnx.Tensor_FLOAT, rowsSymbol, int(a.Heads)))
		s.engine.Skipped = append(s.engine.Skipped, n.Out[1].Name)
	}
	s.replace(w.Output, n.Out[0])
	heads, size := int(a.Heads), int(a.ValueSize)
	dims := []any{rowsSymbol, heads, 1, size}
	switch {
	case w.OutputRank == 3:
		dims = []any{rowsSymbol, 1, heads * size}
	case operand(w.OutputLayout) == "bshd":
		dims = []any{rowsSymbol, 1, heads, size}
	}
	s.attended = append(s.attended, &onnx.ValueInfo{Name: proto.String(n.Out[0].Name), Type: graph.TensorType(onnx.Tensor_FLOAT, dims...)})
	return nil
}

// selfKeysValues keeps keys and values.
func (s *stateful) selfKeysValues(b *blocks.Block) error {
	a, w := b.Attention, b.Wiring
	// Packed, the query holds keys and values too.
	if !w.Packed && (w.Key == nil || w.Value == nil) {
		return errors.New("it has no new keys and values")
	}
	f, err := s.selfFace(b)
	if err != nil {
		return err
	}
	ins := []*graph.Value{s.now(w.Query), nil, nil, f.cache, f.steps, f.shared, f.own, f.write, f.bias}
	if !w.Packed {
		ins[1], ins[2] = s.now(w.Key), s.now(w.Value)
	}
	return s.attend(b, plan.KeepKeysAndValues, ins, "kv_num_heads", a.KVHeads,
		"offset", area(&s.engine.Self, keysValuesFloats(a)))
}

// selfInputs keeps what keys and values are projected from.
func (s *stateful) selfInputs(b *blocks.Block) error {
	a := b.Attention
	from, err := s.sources(b)
	if err != nil {
		return err
	}
	weights, err := s.fold(plan.KeepInputs, b, from.key, from.value, nil)
	if err != nil {
		return err
	}
	query, err := s.queryOf(b)
	if err != nil {
		return err
	}
	f, err := s.selfFace(b)
	if err != nil {
		return err
	}
	ins := []*graph.Value{query, f.cache, f.steps, f.shared, weights[0], weights[1], s.seenBias(b, from.key), s.row(from.value.Bias),
		f.bias, f.own, s.now(from.input), f.write}
	return s.attend(b, plan.KeepInputs, ins, append(s.rows(area(&s.engine.Self, s.rowFloats(from.key.Inputs))),
		"kv_num_heads", a.KVHeads, "width", from.key.Inputs)...)
}

// selfPrompt keeps the inputs of a prompt, and keys and values of what follows it.
func (s *stateful) selfPrompt(b *blocks.Block) error {
	a, w := b.Attention, b.Wiring
	from, err := s.sources(b)
	if err != nil {
		return err
	}
	weights, err := s.fold(plan.KeepLatent, b, from.key, from.value, nil)
	if err != nil {
		return err
	}
	prompt, err := s.pool(PromptPool)
	if err != nil {
		return err
	}
	promptWrite, err := s.input(PromptPool.Write, onnx.Tensor_INT32, rowsSymbol)
	if err != nil {
		return err
	}
	f, err := s.selfFace(b)
	if err != nil {
		return err
	}
	ins := []*graph.Value{s.now(w.Query), prompt[0], prompt[1], prompt[2], weights[0], weights[1],
		s.row(from.key.Bias), s.row(from.value.Bias), f.bias, nil, s.now(from.input), promptWrite,
		nil, nil, f.cache, f.steps, f.shared, f.own, f.write}
	if !w.Packed {
		ins[12], ins[13] = s.now(w.Key), s.now(w.Value)
	}
	return s.attend(b, plan.KeepLatent, ins, append(s.rows(area(&s.engine.Prompt, s.rowFloats(from.key.Inputs))),
		"kv_num_heads", a.KVHeads, "width", from.key.Inputs, "kv_offset", area(&s.engine.Self, keysValuesFloats(a)))...)
}

// selfKeys keeps keys alone.
func (s *stateful) selfKeys(b *blocks.Block) error {
	a := b.Attention
	if a.Heads != a.KVHeads {
		return refuse("its %d heads share %d of keys and values", a.Heads, a.KVHeads)
	}
	from, err := s.projections(b)
	if err != nil {
		return err
	}
	rotary, err := s.rotary(b)
	if err != nil {
		return err
	}
	// A bias of keys adds the same to all scores of a query, which a softmax does not
	// see, unless keys are turned or scores bent in between.
	biased := rotary != nil || a.Softcap != 0
	keyBias := from.key.Bias
	if !biased {
		keyBias = nil
	}
	weights, err := s.fold(plan.KeepKeys, b, from.key, from.value, keyBias)
	if err != nil {
		return err
	}
	query, key, err := s.queryAndKey(b, biased)
	if err != nil {
		return err
	}
	f, err := s.selfFace(b)
	if err != nil {
		return err
	}
	ins := []*graph.Value{query, f.cache, f.steps, f.shared, weights[0], weights[1], f.bias, f.own, key, f.write}
	attributes := s.rows(area(&s.engine.Self, s.rowFloats(a.Heads*a.HeadSize)))
	if rotary != nil {
		ins = append(ins, rotary.cos, rotary.sin)
		attributes = append(attributes, "rotary", rotary.style)
	}
	return s.attend(b, plan.KeepKeys, ins, attributes...)
}

// attends reports an operator over a pool.
func attends(n *graph.Node) bool {
	return slices.ContainsFunc(n.In, func(v *graph.Value) bool {
		return v != nil && v.IsInput && slices.ContainsFunc(pools, func(p PoolInputs) bool { return v.Name == p.Cache })
	})
}
