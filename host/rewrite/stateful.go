package rewrite

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/plugin"
)

// Inputs of an engine graph, beside the model's own input of tokens.
const (
	PositionsInput   = "graft.positions"    // int64 (T, 1): the position of each row's token
	SelectInput      = "graft.select"       // int64 (R): the rows whose scores are wanted
	CacheInput       = "graft.cache"        // float32: the pool of self attention, see host/decode/cache
	StepsInput       = "graft.steps"        // int32 (G, 8): the groups of rows that share a prefix
	SharedInput      = "graft.shared"       // int32: slots of the positions that all rows of a group see
	OwnInput         = "graft.own"          // int32: slots of the positions of each row
	WriteInput       = "graft.write"        // int32 (T): the slot that each row's key and value go to
	CrossCacheInput  = "graft.cross_cache"  // float32: the pool of cross attention
	CrossStepsInput  = "graft.cross_steps"  // int32 (G, 8)
	CrossSharedInput = "graft.cross_shared" // int32
)

// rowsSymbol names the number of rows of a step.
const rowsSymbol = "graft.batch"

// cachedAttention is the operator that attends over the host's pool.
const cachedAttention = "CachedAttention"

// Geometry is what one pool of keys and values holds.
type Geometry struct {
	Layers    int64 `json:"layers"`
	KVHeads   int64 `json:"kv_heads"`
	HeadSize  int64 `json:"head_size"`
	ValueSize int64 `json:"value_size"`
}

// CrossLayer names the model's inputs that brought one layer's keys and values
// of the encoder's output.
type CrossLayer struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// Engine is the face of a graph that Stateful made.
type Engine struct {
	Tokens    string       // the input of tokens, int64 (T, 1)
	Logits    string       // the output of scores, float32 (R, 1, V) or (R, V)
	Positions bool         // PositionsInput is read
	Self      Geometry     // of CacheInput
	Cross     *Geometry    // of CrossCacheInput; nil without cross attention
	Layers    []CrossLayer // of the cross pool, by layer
}

// Lengths are what a drawn model is evaluated at: one row of New tokens after
// Past, over Encoder positions, with nothing hidden by a mask that is given.
type Lengths struct {
	Past, New, Encoder int64
}

// Evaluated is a value's content at some lengths, booleans and integers as
// numbers.
type Evaluated struct {
	Shape []int64
	Data  []float32
}

// StatefulOptions are what Stateful cannot find in the graph.
type StatefulOptions struct {
	// Evaluate computes values of the model as drawn. Stateful asks it what masks
	// hide, and for tables of what depends on nothing but a position.
	Evaluate func(names []string, at Lengths) ([]Evaluated, error)
	// Positions is the longest sequence: what depends on positions is tabulated
	// to there.
	Positions int64
}

// Stateful turns an exported decoder with its past on its face into an engine
// graph, in which each token is a row: the batch is T tokens of any sequences,
// the sequence axis is 1. Attention reads keys and values from a pool of the
// host's by slots, and writes them there; masks go, because the slots say what a
// row sees; what the graph derives from the length of the past (positions, bias)
// is looked up by each row's own position; and scores are computed for the rows
// that are asked for. The report and shapes are those of the graph.
func Stateful(g *graph.Graph, shapes *graph.Shapes, report *blocks.Report, o StatefulOptions) (*Engine, error) {
	s := &stateful{options: o, engine: &Engine{Tokens: "input_ids", Logits: "logits"}, inputs: map[string]*graph.Value{},
		rewriter: &rewriter{main: g, shapes: shapes, lengths: map[lengthKey]*graph.Value{},
			instead: map[*graph.Value]*graph.Value{}, drawn: map[*graph.Value]*graph.Value{}}}
	if len(report.Unrecognised) > 0 {
		u := report.Unrecognised[0]
		return nil, fmt.Errorf("%s was not recognised as attention (%s), which an engine must know", u.Node, u.Reason)
	}
	for _, step := range []func() error{
		func() error { return s.face() },
		func() error { return s.attentions(report.Blocks) },
		func() error { return s.selectRows() },
		func() error { return s.rowPositions() },
		func() error { return s.finish() },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	return s.engine, nil
}

type stateful struct {
	*rewriter
	options StatefulOptions
	engine  *Engine
	inputs  map[string]*graph.Value // new ones
	logits  *graph.Value
	tokens  *graph.Value
	// attended are the results of attention with their lengths, which nothing but
	// the rewrite knows.
	attended []*onnx.ValueInfo
}

// face finds tokens and scores, and lets go of all other outputs.
func (s *stateful) face() error {
	for _, v := range s.main.Inputs {
		if v.Name == s.engine.Tokens || v.Name == "decoder_"+s.engine.Tokens {
			s.tokens, s.engine.Tokens = v, v.Name
		}
	}
	i := slices.IndexFunc(s.main.Outputs, func(v *graph.Value) bool { return v.Name == s.engine.Logits })
	if s.tokens == nil || i < 0 {
		return errors.New("the model has no input input_ids or no output logits: it is no decoder that graft knows")
	}
	s.logits = s.main.Outputs[i]
	s.main.KeepOutputs(s.logits)
	return nil
}

// input is a new input of the graph, declared once.
func (s *stateful) input(name string, kind onnx.Tensor_DataType, dims ...any) (*graph.Value, error) {
	if v := s.inputs[name]; v != nil {
		return v, nil
	}
	v, err := s.main.AddInput(name, graph.TensorType(kind, dims...))
	if err != nil {
		return nil, err
	}
	s.inputs[name] = v
	return v, nil
}

// attentions puts CachedAttention in place of every block.
func (s *stateful) attentions(list []*blocks.Block) error {
	selfLayer, crossLayer := int64(0), int64(0)
	var biases biasTables
	for _, b := range list {
		a := b.Attention
		if b.Wiring.Graph != s.main {
			return fmt.Errorf("%s lies in a subgraph, from which an engine cannot take it", b.Node)
		}
		if err := servable(b); err != nil {
			return fmt.Errorf("%s: %w", b.Node, err)
		}
		geometry := Geometry{KVHeads: a.KVHeads, HeadSize: a.HeadSize, ValueSize: a.ValueSize}
		var err error
		if a.Type == "cross" {
			if s.engine.Cross == nil {
				s.engine.Cross = &geometry
			}
			if err = s.engine.Cross.same(geometry); err == nil {
				err = s.cross(b, crossLayer)
			}
			crossLayer++
			s.engine.Cross.Layers = crossLayer
		} else {
			if selfLayer == 0 {
				s.engine.Self = geometry
			}
			if err = s.engine.Self.same(geometry); err == nil {
				err = s.self(b, selfLayer, &biases)
			}
			selfLayer++
			s.engine.Self.Layers = selfLayer
		}
		if err != nil {
			return fmt.Errorf("%s: %w", b.Node, err)
		}
	}
	if selfLayer == 0 {
		return errors.New("the model has no self attention that could keep a cache")
	}
	return nil
}

// same reports layers whose keys and values do not fit one pool.
func (g *Geometry) same(o Geometry) error {
	if g.KVHeads != o.KVHeads || g.HeadSize != o.HeadSize || g.ValueSize != o.ValueSize {
		return fmt.Errorf("its cache is of %d heads of %d and %d, those before it of %d heads of %d and %d: one pool cannot hold both",
			o.KVHeads, o.HeadSize, o.ValueSize, g.KVHeads, g.HeadSize, g.ValueSize)
	}
	return nil
}

// servable reports why CachedAttention cannot stand in for a block.
func servable(b *blocks.Block) error {
	a, w := b.Attention, b.Wiring
	switch {
	case b.Obstacle != "":
		return errors.New(b.Obstacle)
	case a.DType != "float32":
		return fmt.Errorf("its data type is %s; the engine's is float32", a.DType)
	case w.Scores != nil:
		return errors.New("its probabilities are read by something else, which an engine has no use for")
	case w.Lengths != nil:
		return errors.New("it takes the lengths of keys as an input of its own")
	}
	return nil
}

func (s *stateful) self(b *blocks.Block, layer int64, biases *biasTables) error {
	a, w := b.Attention, b.Wiring
	// Packed, the query holds keys and values too.
	if !w.Packed && (w.Key == nil || w.Value == nil) {
		return errors.New("it has no new keys and values")
	}
	bias, err := s.bias(b, biases)
	if err != nil {
		return err
	}
	window := max(a.Window, w.Window)
	return s.replaceAttention(b, layer, window, CacheInput, StepsInput, SharedInput, bias)
}

func (s *stateful) cross(b *blocks.Block, layer int64) error {
	w := b.Wiring
	key, value := w.Key, w.Value
	if key == nil {
		key, value = w.PastKey, w.PastValue
	}
	if key == nil || value == nil || !key.IsInput || !value.IsInput {
		return errors.New("its keys and values are not inputs of the model; take the decoder that is exported with past")
	}
	s.engine.Layers = append(s.engine.Layers, CrossLayer{key.Name, value.Name})
	if err := s.nothingHidden(b); err != nil {
		return err
	}
	return s.replaceAttention(b, layer, 0, CrossCacheInput, CrossStepsInput, CrossSharedInput, nil)
}

// replaceAttention adds the operator and lets its output stand for the block's.
func (s *stateful) replaceAttention(b *blocks.Block, layer, window int64, cache, steps, shared string, bias *graph.Value) error {
	a, w := b.Attention, b.Wiring
	slot := int64(16) * a.KVHeads * (a.HeadSize + a.ValueSize)
	ins := []*graph.Value{s.now(w.Query), nil, nil}
	self := cache == CacheInput
	if self && !w.Packed {
		ins[1], ins[2] = s.now(w.Key), s.now(w.Value)
	}
	for _, in := range []struct {
		name string
		kind onnx.Tensor_DataType
		dims []any
	}{
		{cache, onnx.Tensor_FLOAT, []any{cache + ".blocks", cache + ".floats"}},
		{steps, onnx.Tensor_INT32, []any{steps + ".groups", 8}},
		{shared, onnx.Tensor_INT32, []any{shared + ".slots"}},
	} {
		v, err := s.input(in.name, in.kind, in.dims...)
		if err != nil {
			return err
		}
		ins = append(ins, v)
	}
	if self {
		own, err := s.input(OwnInput, onnx.Tensor_INT32, OwnInput+".slots")
		if err != nil {
			return err
		}
		write, err := s.input(WriteInput, onnx.Tensor_INT32, rowsSymbol)
		if err != nil {
			return err
		}
		ins = append(ins, own, write)
		if bias != nil {
			ins = append(ins, bias)
		}
	}
	n, err := s.node(s.main, plugin.Domain, cachedAttention, ins, []string{s.main.FreshName("graft_attention")},
		"num_heads", a.Heads, "kv_num_heads", a.KVHeads, "head_size", a.HeadSize, "value_size", a.ValueSize, "offset", layer*slot,
		"scale", w.Scale, "softcap", a.Softcap, "window", window,
		"output_layout", operand(w.OutputLayout), "output_rank", w.OutputRank)
	if err != nil {
		return err
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

// selectRows computes scores for the rows that are asked for: the rows are
// picked before the product with the vocabulary.
func (s *stateful) selectRows() error {
	v := s.logits
	for v.Producer != nil && v.Producer.Is("Add", "Mul", "Div", "Cast", "Identity", "Reshape", "Tanh") {
		next := s.operandOf(v.Producer)
		if next == nil {
			break
		}
		v = next
	}
	n := v.Producer
	if n == nil || !n.Is("MatMul", "Gemm") || n.Input(0) == nil {
		return fmt.Errorf("the scores come from %s, needed is a product with the vocabulary", describe(n))
	}
	hidden := n.Input(0)
	rows, err := s.input(SelectInput, onnx.Tensor_INT64, "graft.batch_selected")
	if err != nil {
		return err
	}
	pick, err := s.node(s.main, "", "Gather", []*graph.Value{hidden, rows}, []string{s.main.FreshName("graft.batch_selected")}, "axis", 0)
	if err != nil {
		return err
	}
	n.SetInput(0, pick.Out[0])
	return nil
}

// operandOf is the only input of a node that is not a constant.
func (s *stateful) operandOf(n *graph.Node) *graph.Value {
	var found *graph.Value
	for i, v := range n.In {
		if v == nil || v.Tensor != nil || v.Producer != nil && v.Producer.Is("Constant") || n.Is("Reshape") && i > 0 {
			continue
		}
		if found != nil {
			return nil
		}
		found = v
	}
	return found
}

func describe(n *graph.Node) string {
	if n == nil {
		return "no node"
	}
	return n.Op() + " " + n.String()
}

// finish declares the tokens as rows, drops what nothing reads and commits.
func (s *stateful) finish() error {
	if err := s.freeRest(); err != nil {
		return err
	}
	for _, in := range slices.Clone(s.main.Inputs) {
		if s.inputs[in.Name] != nil || in == s.tokens || in.Tensor != nil {
			continue
		}
		if len(in.Uses) > 0 {
			return fmt.Errorf("input %s is still read by %s, which an engine cannot feed", in.Name, describe(in.Uses[0].Node))
		}
		s.main.RemoveInput(in)
	}
	if err := s.main.SetInputDims(s.tokens, rowsSymbol, 1); err != nil {
		return err
	}
	s.main.ForgetTypes() // declared lengths were those of a batch and a sequence
	s.main.Proto.ValueInfo = s.attended
	s.main.ImportOpset(plugin.Domain, domainVersion)
	if err := s.main.Sort(); err != nil {
		return err
	}
	s.main.Prune()
	return s.main.Commit()
}

// freeRest takes the lengths that are still read off other inputs from the
// tokens.
func (s *stateful) freeRest() error {
	s.main.Prune()
	inputs := s.main.Inputs
	s.main.Inputs = []*graph.Value{s.tokens}
	defer func() { s.main.Inputs = inputs }()
	s.settleReshapes()
	s.main.Prune()
	for _, n := range slices.Clone(s.main.Nodes) {
		if n.Is("Shape") && n.In[0] != s.tokens {
			// What cannot be had from the tokens shows when an input is still read.
			_ = s.freeShape(n)
		}
	}
	if err := s.main.Sort(); err != nil {
		return err
	}
	s.main.Prune()
	return nil
}
