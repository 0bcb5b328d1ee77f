package engine

import (
	"fmt"
	"maps"
	"slices"

	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/memory"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/rewrite"
)

// weights are those that plugins folded for their operators, in large pages like the
// panels of products.
type weights struct {
	memory  *memory.Region
	tensors map[string]*ort.Value
}

// newWeights moves folded weights out of Go's memory; none give nil.
func newWeights(l *ort.Library, folded map[string]*rewrite.Folded) (_ *weights, err error) {
	if len(folded) == 0 {
		return nil, nil
	}
	const line = 16 // floats of a cache line
	room := func(n int) int64 { return int64(n+line-1) / line * line }
	total := int64(0)
	for _, f := range folded {
		total += room(len(f.Data))
	}
	w := &weights{tensors: map[string]*ort.Value{}}
	defer func() {
		if err != nil {
			w.close()
		}
	}()
	if w.memory, err = memory.Reserve(4 * total); err != nil {
		return nil, fmt.Errorf("folded weights: %w", err)
	}
	rest := w.memory.Floats()
	for _, name := range slices.Sorted(maps.Keys(folded)) {
		f := folded[name]
		data := rest[:len(f.Data)]
		rest = rest[room(len(f.Data)):]
		copy(data, f.Data)
		f.Data = nil
		if w.tensors[name], err = ort.NewTensor(l, f.Shape, data); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *weights) inputs() map[string]*ort.Value {
	if w == nil {
		return nil
	}
	return w.tensors
}

func (w *weights) size() int64 {
	if w == nil {
		return 0
	}
	return w.memory.Size()
}

func (w *weights) close() {
	if w == nil {
		return
	}
	for _, v := range w.tensors {
		v.Close()
	}
	if w.memory != nil {
		_ = w.memory.Close() // nothing can be done about a mapping that stays
	}
}

// fold is rewrite.StatefulOptions.Fold.
func (o Options) fold(keep plan.Keep, constants []plugin.Weight, attributes []plugin.Attribute) (map[string]*rewrite.Folded, error) {
	p, err := patch.Named(o.Plugins.Plugins, keep.Plugin())
	if err != nil {
		return nil, err
	}
	list, err := p.Fold(keep.Operator(), constants, attributes)
	if err != nil {
		return nil, err
	}
	made := map[string]*rewrite.Folded{}
	for _, w := range list {
		f := &rewrite.Folded{Shape: w.Shape, Data: make([]float32, len(w.Floats))}
		for i, x := range w.Floats {
			f.Data[i] = float32(x)
		}
		made[w.Name] = f
	}
	return made, nil
}

// firstDecoder is the decoder without a past, which has the weights of keys and values
// of the encoder's output. It is opened when it is asked.
type firstDecoder struct {
	path   string
	model  *model.Model
	graph  *graph.Graph
	report *blocks.Report
}

func (d *firstDecoder) close() {
	if d.model != nil {
		d.model.Close()
	}
}

func (d *firstDecoder) open() (err error) {
	if d.model, err = model.Open(d.path); err != nil {
		return err
	}
	if err = takeBranch(d.model.Proto(), false); err != nil {
		return err
	}
	if d.graph, err = graph.New(d.model.Proto(), d.model); err != nil {
		return err
	}
	d.report = blocks.Find(d.graph, graph.Infer(d.graph))
	return nil
}

// projections are those of a block of cross attention of the decoder with a past.
func (d *firstDecoder) projections(b *blocks.Block) (key, value *rewrite.Projection, err error) {
	if d.report == nil {
		if err := d.open(); err != nil {
			return nil, nil, fmt.Errorf("%s: %w", d.path, err)
		}
	}
	origin := blocks.Origin(b, d.report)
	if origin == nil || origin.Attention.Projections == nil || origin.Attention.Projections.Key == nil || origin.Attention.Projections.Value == nil {
		return nil, nil, &plugin.Error{Kind: plugin.ErrRefused, Path: d.path, Found: "found no products that make its keys and values"}
	}
	p := origin.Attention.Projections
	if key, err = rewrite.ReadProjection(d.graph, p.Key); err != nil {
		return nil, nil, err
	}
	value, err = rewrite.ReadProjection(d.graph, p.Value)
	return key, value, err
}
