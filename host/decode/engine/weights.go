package engine

import (
	"fmt"

	"github.com/opgraft/graft/host/blocks"
	"github.com/opgraft/graft/host/fold"
	"github.com/opgraft/graft/host/graph"
	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
	"github.com/opgraft/graft/host/plan"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/rewrite"
)

// weights are those that plugins folded for their operators.
type weights struct {
	plugins []*plugin.Plugin
	plan    plan.Options // which of them may be used
	servers plan.Servers
	cache   *fold.Cache // nil: none
	folded  []*fold.Result
	tensors map[string]*ort.Value
}

// fold is rewrite.StatefulOptions.Fold.
func (w *weights) fold(keep plan.Keep, constants []plugin.Weight, attributes []plugin.Attribute) (map[string]*rewrite.Folded, error) {
	server := w.servers.Of(keep)
	if why := w.plan.RulesOut(server.Plugin); why != "" {
		return nil, &plugin.Error{Kind: plugin.ErrRefused, Found: why}
	}
	p, err := patch.Named(w.plugins, server.Plugin)
	if err != nil {
		return nil, &plugin.Error{Kind: plugin.ErrRefused, Found: err.Error()}
	}
	r, err := w.cache.Get(p, server.Operator, constants, attributes)
	if err != nil {
		return nil, err
	}
	w.folded = append(w.folded, r)
	made := map[string]*rewrite.Folded{}
	for _, f := range r.Weights() {
		made[f.Name] = &rewrite.Folded{Shape: f.Shape, Data: f.Floats}
	}
	return made, nil
}

// rowStore is the operator that puts rows into a pool.
func (w *weights) rowStore(width int64, storage plan.Storage) (*plugin.Kernel, error) {
	p, err := withRows(w.plugins)
	if err != nil {
		return nil, err
	}
	if storage == "" {
		storage = plan.Float32
	}
	return p.Create(storeRows, []plugin.Attribute{{Name: "width", Value: width}, {Name: "storage", Value: string(storage)}}, nil, plugin.CPU)
}

// storeRows is the operator that puts rows into a pool.
const storeRows = "StoreRows"

// withRows is a plugin that has it, as graft's own that attend over rows do.
func withRows(plugins []*plugin.Plugin) (*plugin.Plugin, error) {
	for _, p := range plugins {
		if _, _, ok := p.Info.Operator(storeRows); ok {
			return p, nil
		}
	}
	return nil, fmt.Errorf("no plugin at hand has the operator %s, which puts rows into a pool; el-attention and slim-attention have it", storeRows)
}

// open makes tensors of them, where they lie.
func (w *weights) open(l *ort.Library, folded map[string]*rewrite.Folded) (err error) {
	w.tensors = map[string]*ort.Value{}
	for name, f := range folded {
		if w.tensors[name], err = ort.NewTensor(l, f.Shape, f.Data); err != nil {
			return err
		}
	}
	return nil
}

// size is the bytes of all of them.
func (w *weights) size() (n int64) {
	for _, r := range w.folded {
		n += r.Size()
	}
	return n
}

func (w *weights) close() {
	if w == nil {
		return
	}
	for _, v := range w.tensors {
		v.Close()
	}
	for _, r := range w.folded {
		_ = r.Close() // nothing can be done about a mapping that stays
	}
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
			return nil, nil, about(d.path, err)
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
