package quantization

import (
	"context"
	"crypto/sha256"
	"fmt"
	"runtime"

	"github.com/opgraft/graft/host/generate/prepare"
	"github.com/opgraft/graft/host/measure/comparison/divergence"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin"
)

// probeTokens is the maximum of tokens over which single sets of weights are measured: what they do is only put in an
// order.
const probeTokens = 512

// probe measures what rounding a few weights does to distributions, without opening the model again: the graphs of
// the model as exported take their weights as inputs.
type probe struct {
	*reader
	by      *plugin.Plugin
	options Options
	vocab   int
	parts   []part
	known   [][]float32 // logits of the model as exported, by part
	weights map[[sha256.Size]byte][]probed
}

// probed is a weight of one of the graphs.
type probed struct {
	*matrix
	of    *reading
	input string
	plain *ort.Value
}

// newProbe makes a probe over the first of some parts. An error of kind errOther is of a model that can be measured
// by an engine alone.
func newProbe(ctx context.Context, l *ort.Library, by *plugin.Plugin, encoder, main string, parts []part, vocab int,
	o Options) (_ *probe, err error) {
	if o.Threads == 0 {
		o.Threads = runtime.NumCPU()
	}
	p := &probe{by: by, options: o, vocab: vocab, weights: map[[sha256.Size]byte][]probed{}}
	if p.reader, err = newReader(l, o.Threads, encoder, main, o); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	for _, x := range p.graphs() {
		if err := p.take(x); err != nil {
			return nil, modelError(x.path, err)
		}
	}
	if p.main.outputs = []string{p.main.logits}; p.main.logits == "" {
		return nil, modelError(p.main.path, fmt.Errorf("no output is known to be logits: %w", errOther))
	}
	if err := p.start(); err != nil {
		return nil, err
	}
	left := probeTokens
	for _, part := range parts {
		if part.End = min(part.End, part.From+left); part.End <= part.From {
			break
		}
		left -= part.End - part.From
		p.parts = append(p.parts, part)
		rows, err := p.logits(ctx, part)
		if err != nil {
			return nil, err
		}
		p.known = append(p.known, rows)
	}
	return p, nil
}

func (p *probe) close() {
	for _, list := range p.weights {
		for _, w := range list {
			w.plain.Close()
		}
	}
	p.reader.close()
}

// take makes inputs of a graph's weights, [depth, columns] whatever way they lie.
func (p *probe) take(x *reading) error {
	for i, m := range x.chosen {
		sum, err := x.sum(m)
		if err != nil {
			return err
		}
		in, err := x.graph.AddInput(x.graph.FreshName(fmt.Sprint("graft.weight.", i)),
			graph.TensorType(onnx.Tensor_FLOAT, int(m.depth), int(m.columns)))
		if err != nil {
			return err
		}
		data, err := x.dataOf(m)
		if err != nil {
			return err
		}
		plain, err := m.tensor(p.library, func(column int64, to []float32) { m.plain(data, column, to) })
		if err != nil {
			return err
		}
		x.given[in.Name] = plain
		p.weights[sum] = append(p.weights[sum], probed{m, x, in.Name, plain})
		for _, n := range m.nodes {
			n.SetInput(1, in)
			for _, a := range n.Proto.Attribute {
				if a.GetName() == "transB" {
					a.I = new(int64)
				}
			}
		}
	}
	x.graph.Prune()
	return nil
}

// tensor has numbers of a weight, [depth, columns], a column at a time.
func (m *matrix) tensor(l *ort.Library, numbers func(column int64, to []float32)) (*ort.Value, error) {
	list, one := make([]float32, m.depth*m.columns), make([]float32, m.depth)
	for column := range m.columns {
		numbers(column, one)
		for k, w := range one {
			list[int64(k)*m.columns+column] = w
		}
	}
	return ort.NewTensor(l, []int64{m.depth, m.columns}, list)
}

// covers says whether all weights of a unit are in the graphs.
func (p *probe) covers(u *unit, numbers map[prepare.Weight][sha256.Size]byte) bool {
	for _, w := range u.weights {
		if len(p.weights[numbers[w]]) == 0 {
			return false
		}
	}
	return true
}

// logits are those that predict a part's tokens.
func (p *probe) logits(ctx context.Context, of part) (rows []float32, err error) {
	tokens := of.tokens[of.Begin : of.End-1] // the last is only predicted
	err = p.run(ctx, of.encoder, tokens, func(x *reading, results []*ort.Value) error {
		if x != p.main {
			return nil
		}
		all, err := ort.Data[float32](results[0])
		if err == nil && len(all) != len(tokens)*p.vocab {
			err = fmt.Errorf("%d logits for %d tokens: %w", len(all), len(tokens), errOther) // of the last alone
		}
		if err == nil {
			first := of.From - 1 - of.Begin
			rows = append(rows, all[first*p.vocab:(first+of.End-of.From)*p.vocab]...)
		}
		return err
	})
	return rows, err
}

// of is the mean divergence of a token where some weights, by their numbers, have a type, and all others are as
// exported.
func (p *probe) of(ctx context.Context, sums [][sha256.Size]byte) (kl float64, err error) {
	var made []*ort.Value
	defer func() {
		for _, sum := range sums {
			for _, w := range p.weights[sum] {
				w.of.given[w.input] = w.plain
			}
		}
		closeAll(made)
	}()
	for _, sum := range sums {
		for _, w := range p.weights[sum] {
			r, _, err := w.of.round(w.matrix, sum, p.by, p.options)
			if err != nil {
				return 0, err
			}
			v, err := w.tensor(p.library, func(column int64, to []float32) { w.values(r, column, to) })
			if err != nil {
				return 0, err
			}
			made = append(made, v)
			w.of.given[w.input] = v
		}
	}
	both := divergence.New(2, p.vocab)
	for i, part := range p.parts {
		rows, err := p.logits(ctx, part)
		if err == nil {
			err = both.Add(i, part.From, part.tokens[part.From:part.End], [][]float32{p.known[i], rows})
		}
		if err != nil {
			return 0, fmt.Errorf("text %d: %w", i+1, err)
		}
	}
	return both.Divergence(1).KLMean, nil
}
