// Package topk runs the end of a decoding step in a plugin that provides select-tokens/1, called directly through its C
// table: the logits are read where they lie, once, and only candidates come back.
package topk

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/opgraft/graft/host/generate/search"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// Selector is a search.Selector in native code. It holds the memory that a step needs, so one goroutine at a time
// may use it; several Selectors of one plugin run at once.
type Selector struct {
	kernel   *plugin.Kernel
	operator string
	ctx      plugin.RunContext

	groups, offsets, tokens, ops, rows, outTokens, fault []int32
	warpers, bias, values, uniform, scores               []float32

	in, out [numInputs]*tensor.Tensor // by position; nil where absent
	slots   [numInputs + numOutputs]tensor.Tensor
	shapes  [numInputs + numOutputs][2]int64
}

// Positions of the operator's inputs and outputs.
const (
	inLogits = iota
	inGroups
	inWarpers
	inBias
	inOffsets
	inTokens
	inOps
	inValues
	inUniform
	numInputs
)

const (
	outScores = iota
	outRows
	outTokens
	outFault
	numOutputs
)

// Fields of a group, and of its warpers, in the operator's tensors.
const (
	groupFields  = 8
	warperFields = 4
	logSoftmax   = 1
	normalize    = 2
)

// Kinds of fault.
const (
	faultLogit   = 1 // row, token and logit say which
	faultNothing = 2 // row is the first of its group
	faultRequest = 3 // of a plugin on a device, which cannot throw: a group, processor or index contradicts itself
)

// New makes a Selector of a loaded plugin. Steps of many logits are shared by up to `threads` goroutines;
// below 2 the caller's thread does all.
func New(p *plugin.Plugin, operator string, threads int) (*Selector, error) {
	kernel, err := p.Create(operator, nil, nil, tensor.CPU)
	if err != nil {
		return nil, err
	}
	return &Selector{kernel: kernel, operator: operator, ctx: plugin.RunContext{Threads: threads},
		fault: make([]int32, 4)}, nil
}

// Close frees the kernel. Close a Selector only when no Run is in flight.
func (t *Selector) Close() { t.kernel.Destroy() }

// Run implements search.Selector. Logits that cannot be searched are a *search.RowError.
func (t *Selector) Run(req *search.Request) ([][]search.Candidate, error) {
	width, err := t.flatten(req)
	if err != nil {
		return nil, err
	}
	if len(req.Groups) == 0 {
		return [][]search.Candidate{}, nil
	}
	t.bind(req, width)
	if err := t.kernel.Run(&t.ctx, t.in[:numInputs], t.out[:numOutputs]); err != nil {
		return nil, err
	}
	switch row := int(t.fault[1]); t.fault[0] {
	case faultLogit:
		logit := math.Float32frombits(uint32(t.fault[3]))
		return nil, &search.RowError{Row: row, Found: fmt.Sprintf("the logit of token %d is %g", t.fault[2], logit)}
	case faultNothing:
		return nil, &search.RowError{Row: row, Found: "every token is banned or impossible"}
	case faultRequest:
		return nil, fmt.Errorf("%s: row %d: its group, a processor or the index of n-grams contradicts itself", t.operator,
			row)
	}
	return t.candidates(len(req.Groups), width), nil
}

// flatten puts a request's rows and groups into flat memory, which is reused, and gives the largest
// number of candidates that a group asks for.
func (t *Selector) flatten(req *search.Request) (width int, err error) {
	if req.Vocab < 1 || len(req.Logits) != len(req.Rows)*req.Vocab {
		return 0, fmt.Errorf("a request has %d logits for %d rows of %d: %d are needed",
			len(req.Logits), len(req.Rows), req.Vocab, len(req.Rows)*req.Vocab)
	}
	t.bias, t.offsets = t.bias[:0], append(t.offsets[:0], 0)
	t.tokens, t.ops, t.values = t.tokens[:0], t.ops[:0], t.values[:0]
	for i := range req.Rows {
		row := &req.Rows[i]
		t.bias = append(t.bias, row.Bias)
		for _, e := range row.Processors {
			t.tokens = append(t.tokens, e.Token)
			t.ops = append(t.ops, int32(e.Op))
			t.values = append(t.values, e.Value)
		}
		t.offsets = append(t.offsets, int32(len(t.tokens)))
	}
	t.groups, t.warpers, t.uniform = t.groups[:0], t.warpers[:0], t.uniform[:0]
	for i := range req.Groups {
		g := &req.Groups[i]
		if g.K < 1 {
			return 0, fmt.Errorf("group %d asks for %d candidates: at least 1 is needed", i, g.K)
		}
		if g.Mode == search.Sample && len(g.Uniform) != g.K {
			return 0, fmt.Errorf("group %d asks for %d samples and gives %d random numbers", i, g.K, len(g.Uniform))
		}
		flags := int32(0)
		if g.LogSoftmax {
			flags |= logSoftmax
		}
		if g.Normalize {
			flags |= normalize
		}
		width = max(width, g.K)
		t.groups = append(t.groups, int32(g.First), int32(g.Count), int32(g.K), int32(g.Mode),
			flags, int32(g.TopK), int32(g.MinKeep), int32(len(t.uniform)))
		t.warpers = append(t.warpers, g.Temperature, g.TopP, g.MinP, g.TypicalP)
		if g.Mode == search.Sample {
			t.uniform = append(t.uniform, g.Uniform...)
		}
	}
	return width, nil
}

// bind points the tensors at the request's logits and at the Selector's own memory.
func (t *Selector) bind(req *search.Request, width int) {
	n := len(req.Groups)
	t.scores = resize(t.scores, n*width)
	t.rows = resize(t.rows, n*width)
	t.outTokens = resize(t.outTokens, n*width)

	t.in, t.out = [numInputs]*tensor.Tensor{}, [numInputs]*tensor.Tensor{}
	t.in[inLogits] = set(t, inLogits, tensor.Float32, req.Logits, len(req.Rows), req.Vocab)
	t.in[inGroups] = set(t, inGroups, tensor.Int32, t.groups, n, groupFields)
	t.in[inWarpers] = set(t, inWarpers, tensor.Float32, t.warpers, n, warperFields)
	t.in[inBias] = set(t, inBias, tensor.Float32, t.bias, len(t.bias))
	if count := len(t.tokens); count > 0 {
		t.in[inOffsets] = set(t, inOffsets, tensor.Int32, t.offsets, len(t.offsets))
		t.in[inTokens] = set(t, inTokens, tensor.Int32, t.tokens, count)
		t.in[inOps] = set(t, inOps, tensor.Int32, t.ops, count)
		t.in[inValues] = set(t, inValues, tensor.Float32, t.values, count)
	}
	if count := len(t.uniform); count > 0 {
		t.in[inUniform] = set(t, inUniform, tensor.Float32, t.uniform, count)
	}
	t.out[outScores] = set(t, numInputs+outScores, tensor.Float32, t.scores, n, width)
	t.out[outRows] = set(t, numInputs+outRows, tensor.Int32, t.rows, n, width)
	t.out[outTokens] = set(t, numInputs+outTokens, tensor.Int32, t.outTokens, n, width)
	t.out[outFault] = set(t, numInputs+outFault, tensor.Int32, t.fault, len(t.fault))
}

// set makes the tensor of a slot over memory that the Selector or the request holds.
func set[E any](t *Selector, slot int, dtype tensor.DType, data []E, shape ...int) *tensor.Tensor {
	for i, size := range shape {
		t.shapes[slot][i] = int64(size)
	}
	t.slots[slot] = tensor.Tensor{DType: dtype, Shape: t.shapes[slot][:len(shape)],
		Data: unsafe.Pointer(unsafe.SliceData(data))}
	return &t.slots[slot]
}

// candidates makes one list a group; they outlive the next Run.
func (t *Selector) candidates(groups, width int) [][]search.Candidate {
	lists := make([][]search.Candidate, groups)
	all := make([]search.Candidate, 0, groups*width)
	for g := range lists {
		first := len(all)
		for i := g * width; i < (g+1)*width && t.outTokens[i] >= 0; i++ {
			all = append(all, search.Candidate{Row: t.rows[i], Token: t.outTokens[i], Score: t.scores[i]})
		}
		lists[g] = all[first:len(all):len(all)]
	}
	return lists
}

func resize[E any](s []E, n int) []E {
	if cap(s) < n {
		return make([]E, n)
	}
	return s[:n]
}
