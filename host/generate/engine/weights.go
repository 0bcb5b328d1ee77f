package engine

import (
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/tensor"
	"github.com/opgraft/graft/host/rewrite/engine"
	"github.com/opgraft/graft/host/session/fold"
	"github.com/opgraft/graft/host/session/loaded"
)

// weights are those that plugins folded for their operators.
type weights struct {
	folded  []*fold.Result
	tensors map[string]*ort.Value
}

// rowStore is the operator that puts rows into a pool.
func (e *Engine) rowStore(width int64) (*plugin.Kernel, error) {
	p, err := loaded.Named(e.plugins, e.storing.Plugin)
	if err != nil {
		return nil, err
	}
	return p.Create(e.storing.Operator,
		[]manifest.Attribute{{Name: "width", Value: width}, {Name: "storage", Value: string(e.storage.Whole())}}, nil,
		tensor.CPU)
}

// open makes tensors of them, where they lie.
func (w *weights) open(l *ort.Library, folded map[string]*engine.Folded) (err error) {
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
	for _, v := range w.tensors {
		v.Close()
	}
	for _, r := range w.folded {
		_ = r.Close() // nothing can be done about a mapping that stays
	}
	*w = weights{}
}
