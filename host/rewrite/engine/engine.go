// Package engine makes the graph of an engine of an exported decoder: past and present are no longer inputs and
// outputs, attention reads a cache pool of the host's, and each token is a row of its own.
package engine

import (
	"errors"
	"fmt"
	"slices"

	"github.com/opgraft/graft/host/meaning/blocks"
	"github.com/opgraft/graft/host/meaning/roles"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/rewrite"
)

// Inputs of an engine graph, beside the model's own input of tokens.
const (
	PositionsInput = "graft.positions" // int64 (T, 1): the position of each row's token
	SelectInput    = "graft.select"    // int64 (R): the rows whose scores are wanted
	// int64 (T): each row's line of tables in which prompts have others than what follows them
	LinesInput = "graft.lines"
)

// PoolInputs are the inputs by which a graph attends over one pool of the host's.
type PoolInputs struct {
	Cache        string // float32 (blocks, floats): see host/generate/cache
	Sequences    string // int32 (G, 8): sequence descriptors, one row a group of tokens that share positions
	SharedSlots  string // int32: slots of the positions that all tokens of a group see
	PrivateSlots string // int32: slots of the positions of each token
	SlotMapping  string // int32 (T): the slot that each token is written to, or -1
}

func poolInputs(name string) PoolInputs {
	return PoolInputs{"graft." + name + "cache", "graft." + name + "sequences", "graft." + name + "shared_slots",
		"graft." + name + "private_slots", "graft." + name + "slot_mapping"}
}

// The pools: what layers store of a decoder's own positions, or of those that a
// prompt does not hold; inputs of a prompt's layers; keys and values of an encoder's
// output; and the output itself.
var (
	SelfPool    = poolInputs("")
	PromptPool  = poolInputs("prompt_")
	CrossPool   = poolInputs("cross_")
	EncoderPool = poolInputs("encoder_")
)

var pools = []PoolInputs{SelfPool, PromptPool, CrossPool, EncoderPool}

// rowsSymbol names the number of rows of a step.
const rowsSymbol = "graft.batch"

// CrossLayer is one layer of cross attention: the model's inputs that brought its
// keys and values, and where they stand now.
type CrossLayer struct {
	Key, Value                   string
	Strategy                     plan.Strategy
	Inputs                       plan.Strategy // the standard strategy whose inputs its operator takes
	KVHeads, HeadSize, ValueSize int64
	Rows                         string // of plan.Keys: the keys without a bias, in the decoder without a past
	Offset                       int64  // in the pool of cross attention, or of the encoder's output
}

// Interface is what an engine graph reads and makes.
type Interface struct {
	Tokens    string // the input of tokens, int64 (T, 1)
	Logits    string // the output of scores, float32 (R, 1, V) or (R, V)
	Positions bool   // PositionsInput is read
	// Prefix says that tokens of a prompt see all of it. Lines says that LinesInput is read: a token of a prompt looks
	// up its position, another one the decoder's Positions more.
	Prefix, Lines bool
	// Floats of a block of each pool; 0 for one that is not read.
	Self, Prompt, Cross, Encoder int64
	EncoderWidth                 int64 // of a row in the encoder's pool; 0 where there is none
	Layers                       []CrossLayer
	Strategies                   []plan.LayerStrategy // by layer
	Weights                      map[string]*Folded   // inputs that hold weights
	States                       []State              // recurrent ones of each row
	Skipped                      []string             // outputs (T, H): the probability that was left out
	Plugins                      []string             // those whose operators stand in the graph
}

// Decoder is an exported decoder that takes a past, as it was read, and what an engine
// is to make of it.
type Decoder struct {
	Graph  *graph.Graph
	Shapes *graph.Shapes
	Report *blocks.Report
	// First is the decoder without a past, whose graph has the weights that make keys and
	// values of an encoder's output; nil where there is none.
	First *Decoder
	// Logits is the output of logits. Positions is the longest sequence: what depends on positions is tabulated to there.
	Logits    string
	Positions int64
	// Either lets layers that read an encoder's output read keys and values of the
	// requests that have those instead.
	Either bool
	// Implementations are the operators that attend over what is stored.
	Implementations plan.Implementations
	// Storage is the type that caches have; "" is plan.Float32. Skip is the probability below which a key's value is
	// left out where keys are stored alone. Both cost accuracy.
	Storage plan.Storage
	Skip    float64
	// Steps says that the graph is meant for one query after its past: that it hides nothing of what comes after a
	// query is then no statement about several.
	Steps bool
	// Placeholder says that the last token of a run is one in whose place the next is predicted, and that others do not
	// see.
	Placeholder bool
	// Answers are to what Questions asked, and to what Attended.Questions did.
	Answers Answers

	// terms of scores that were looked at, by value; nil for those that are the same for all queries
	own map[*graph.Value]*queryBias
}

// Attended is a decoder whose attention reads the host's pools. It is not committed to
// the model yet: Finish is.
type Attended struct {
	s      *builder
	needed []tabled
}

// Attend begins to turn an exported decoder with its past among its inputs into an
// engine graph, in which each token is a row: the batch is T tokens of any sequences,
// the sequence axis is 1. Attention reads keys and values from a pool of the host's by
// slots, and writes them there; masks go, because the slots say what a row sees; what
// the graph derives from the length of the past (positions, bias) is looked up by each
// row's own position; and logits are computed for the rows that are asked for. Layers
// are those of Layer, one for each block of the report, in its order. The graph is
// changed, also where there is an error.
func (d *Decoder) Attend(layers []*Layer) (*Attended, error) {
	s := &builder{Decoder: d, engine: &Interface{Logits: d.Logits, Weights: map[string]*Folded{}},
		inputs: map[string]*graph.Value{}, data: d.data(), biases: biasTables{}, angles: map[*graph.Value]*graph.Value{},
		states: d.states(), Editor: rewrite.NewEditor(d.Graph, d.Shapes)}
	if err := s.takeEnds(); err != nil {
		return nil, err
	}
	c := &crossing{builder: s, output: -1}
	for _, l := range layers { // in the order of the graph, because one block may read what another made
		if err := s.put(l, c); err != nil {
			return nil, fmt.Errorf("%s: %w", l.block.Node, err)
		}
	}
	if err := s.selectRows(); err != nil {
		return nil, err
	}
	needed, err := s.tables()
	return &Attended{s, needed}, err
}

// Finish completes the engine graph and commits it to the model. The decoder's Answers
// must have those to Questions.
func (a *Attended) Finish() (*Interface, error) {
	if err := a.s.rowPositions(a.needed); err != nil {
		return nil, err
	}
	if err := a.s.finish(); err != nil {
		return nil, err
	}
	return a.s.engine, nil
}

// builder is an engine graph in the making.
type builder struct {
	*rewrite.Editor
	*Decoder
	engine  *Interface
	inputs  map[string]*graph.Value // new ones
	data    map[*graph.Value]bool   // inputs whose content lengths do not tell
	logits  *graph.Value
	states  []state
	tokens  *graph.Value
	numbers []*graph.Value // the model's own inputs of positions
	ordered bool           // a layer hides what comes after a token of a prompt
	biases  biasTables
	angles  map[*graph.Value]*graph.Value // tables of rotary embeddings
	// attended are the results of attention with their lengths, which nothing but
	// the rewrite knows.
	attended []*onnx.ValueInfo
}

// takeEnds finds tokens, positions and logits by what the graph does with them, and lets go of all other outputs.
func (s *builder) takeEnds() error {
	r := roles.Find(s.Graph, s.Shapes, s.Report)
	for _, v := range s.Graph.Inputs {
		switch is := r.Of(v); {
		case v.Tensor != nil:
		case is == roles.Tokens && s.tokens != nil:
			return fmt.Errorf("inputs %s and %s both hold tokens, where an engine feeds one", s.tokens.Name, v.Name)
		case is == roles.Tokens:
			s.tokens = v
		case is == roles.Positions && s.Shapes.Of(v).Rank == 2:
			s.numbers = append(s.numbers, v)
		}
	}
	i := slices.IndexFunc(s.Graph.Outputs, func(v *graph.Value) bool { return v.Name == s.Logits })
	if s.tokens == nil || i < 0 {
		return errors.New("no input looks tokens up, or no output is their logits: it is no decoder that graft knows")
	}
	s.logits, s.engine.Tokens = s.Graph.Outputs[i], s.tokens.Name
	for _, v := range s.numbers {
		rows := roles.Rows(v)
		if rows == 0 || roles.ByName(v.Name) == roles.Positions {
			continue // they become angles, or say it
		}
		// Any integers may look rows up. Tokens do so in a table of as many as there are logits.
		width, _ := s.Shapes.Of(s.logits).Dim(-1).Const()
		if roles.Rows(s.tokens) != width || rows == width || rows < s.Decoder.Positions {
			return fmt.Errorf("input %s looks rows up, of %d, which may be positions or not, as %s does, of %d, for %d logits: "+
				"name the one position_ids where it is that", v.Name, rows, s.tokens.Name, roles.Rows(s.tokens), width)
		}
	}
	keep := []*graph.Value{s.logits}
	for _, x := range s.states {
		keep = append(keep, x.out)
	}
	s.Graph.KeepOutputs(keep...)
	return nil
}

// input is a new input of the graph, declared once.
func (s *builder) input(name string, kind onnx.Tensor_DataType, dims ...any) (*graph.Value, error) {
	if v := s.inputs[name]; v != nil {
		return v, nil
	}
	v, err := s.Graph.AddInput(name, graph.TensorType(kind, dims...))
	if err != nil {
		return nil, err
	}
	s.inputs[name] = v
	return v, nil
}

// Check reports a decoder of which no engine can be made, whatever its layers store.
func (d *Decoder) Check() error {
	for _, u := range d.Report.Unrecognised {
		if u.Classes {
			continue
		}
		return fmt.Errorf("%s was not recognised as attention (%s), which an engine must know", u.Node, u.Reason)
	}
	if err := d.checkStates(); err != nil {
		return err
	}
	self, data := false, d.data()
	for _, b := range d.Report.Blocks {
		if b.Wiring.Graph != d.Graph {
			return fmt.Errorf("%s lies in a subgraph, from which an engine cannot take it", b.Node)
		}
		if err := servable(b); err != nil {
			return fmt.Errorf("%s: %w", b.Node, err)
		}
		for _, v := range d.hiding(b) {
			if in := d.made(v, data, map[*graph.Value]bool{}); in != nil {
				return fmt.Errorf("%s: its mask depends on what input %s holds, which an engine cannot feed", b.Node, in.Name)
			}
		}
		self = self || b.Attention.Type != "cross"
	}
	if !self && !d.Recurrent() {
		for _, f := range d.Graph.Model().GetFunctions() {
			return fmt.Errorf("found no self attention, and functions of its own (%s), into which graft does not look: "+
				"write their nodes into the graph (onnx.inliner.inline_local_functions)", f.GetName())
		}
		for _, v := range d.Graph.Inputs {
			if f := d.Shapes.Of(v); v.Tensor == nil && f.Rank == 4 && f.DType == onnx.Tensor_FLOAT && len(v.Uses) > 0 {
				return fmt.Errorf("it makes keys and values in every step of what input %s holds, as a latent cache does, and an "+
					"engine stores keys and values themselves: export it with a cache of those, as optimum does, or generate with "+
					"--baseline", v.Name)
			}
		}
		return errors.New("the model has no self attention that could have a cache")
	}
	return nil
}

// constantPast reports a past that a graph has of one length alone.
func constantPast(w *blocks.Wiring) bool {
	n, ok := w.PastKeys.Const()
	return ok && n > 0
}

// servable reports why no operator over a pool can stand in for a block.
func servable(b *blocks.Block) error {
	a, w := b.Attention, b.Wiring
	switch {
	case b.Obstacle != "":
		return errors.New(b.Obstacle)
	case a.DType != "float32":
		return fmt.Errorf("its data type is %s; the engine's is float32", a.DType)
	case w.Grown:
		return errors.New("its keys are joined with their past and its values are not, or are parted after it (as " +
			"DiffLlama's are), and an engine stores both as they come")
	case w.Turns():
		return errors.New("features of its values or of its result are columns")
	case w.Scores != nil:
		return errors.New("its probabilities are read by something else, which an engine has no use for")
	case a.Type != "cross" && constantPast(w):
		return fmt.Errorf("its past is %s long in every step, needed is one of any length: exporters fix what is 1 in their "+
			"sample, so give the decoder's a few tokens", w.PastKeys)
	case a.Sinks && a.Type == "cross":
		return errors.New("its softmax counts sinks, and it is cross attention")
	case w.Lengths != nil:
		return errors.New("it takes the lengths of keys as an input of its own")
	}
	return nil
}

// selectRows computes scores for the rows that are asked for: the rows are
// picked before the linear layer to the vocabulary. Rows that are rounded before it, with
// one scale for all of them, are picked as integers.
func (s *builder) selectRows() error {
	v := s.logits
	for v.Producer != nil && v.Producer.Is("Add", "Mul", "Div", "Cast", "Identity", "Reshape", "Tanh") {
		next := s.operandOf(v.Producer)
		if next == nil {
			next = integerSums(v.Producer)
		}
		if next == nil {
			break
		}
		v = next
	}
	n := v.Producer
	if n == nil || !n.Is("MatMul", "Gemm", "MatMulInteger", "com.microsoft.MatMulNBits", "com.microsoft.FusedMatMul") ||
		n.Input(0) == nil || n.Int("transA", 0)+n.Int("transBatchA", 0) != 0 {
		return fmt.Errorf("the scores come from %s, needed is a linear layer to the vocabulary", describe(n))
	}
	hidden := n.Input(0)
	rows, err := s.input(SelectInput, onnx.Tensor_INT64, "graft.batch_selected")
	if err != nil {
		return err
	}
	pick, err := s.AddNode(s.Graph, "", "Gather", []*graph.Value{hidden, rows},
		[]string{s.Graph.FreshName("graft.batch_selected")}, "axis", 0)
	if err != nil {
		return err
	}
	n.SetInput(0, pick.Out[0])
	return nil
}

// integerSums are the sums of a matmul of integers, made float32, that a node scales; nil for another node.
func integerSums(n *graph.Node) *graph.Value {
	if !n.Is("Mul") {
		return nil
	}
	for _, v := range n.In {
		if v != nil && v.Producer.Is("Cast") && v.Producer.Input(0) != nil && v.Producer.In[0].Producer.Is("MatMulInteger") {
			return v
		}
	}
	return nil
}

// operandOf is the only input of a node that is not a constant.
func (s *builder) operandOf(n *graph.Node) *graph.Value {
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
func (s *builder) finish() error {
	if err := s.freeRest(); err != nil {
		return err
	}
	for _, in := range slices.Clone(s.Graph.Inputs) {
		if s.inputs[in.Name] != nil || in == s.tokens || in.Tensor != nil ||
			slices.ContainsFunc(s.states, func(x state) bool { return x.in == in }) {
			continue
		}
		if len(in.Uses) > 0 {
			return fmt.Errorf("input %s is still read by %s, which an engine cannot feed", in.Name, describe(in.Uses[0].Node))
		}
		s.Graph.RemoveInput(in)
	}
	if err := s.Graph.SetInputDims(s.tokens, rowsSymbol, 1); err != nil {
		return err
	}
	if err := s.keepStates(); err != nil {
		return err
	}
	s.Graph.ForgetTypes() // declared lengths were those of a batch and a sequence
	s.Graph.Proto.ValueInfo = s.attended
	s.Graph.ImportOpset(manifest.Domain, rewrite.DomainVersion)
	if err := s.Graph.Sort(); err != nil {
		return err
	}
	s.Graph.Prune()
	return s.Graph.Commit()
}

// freeRest takes the lengths that are still read off other inputs from the
// tokens.
func (s *builder) freeRest() error {
	s.Graph.Prune()
	inputs := s.Graph.Inputs
	s.Graph.Inputs = []*graph.Value{s.tokens}
	defer func() { s.Graph.Inputs = inputs }()
	s.SettleReshapes()
	s.Graph.Prune()
	for _, n := range slices.Clone(s.Graph.Nodes) {
		if n.Is("Shape") && n.In[0] != s.tokens {
			// What cannot be had from the tokens shows when an input is still read.
			_ = s.FreeShape(n)
		}
	}
	if err := s.Graph.Sort(); err != nil {
		return err
	}
	s.Graph.Prune()
	return nil
}
