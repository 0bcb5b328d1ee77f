package random

import (
	"context"
	"os"
	"path/filepath"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/tests/equivalent"
)

// Vary writes the model in another way that computes the same: see tests/equivalent.
func (g *Graph) Vary(ctx context.Context, seed uint64) (*Graph, error) {
	b, err := proto.Marshal(g.Model)
	if err != nil {
		return nil, err
	}
	m, err := model.Parse(b, "")
	if err != nil {
		return nil, err
	}
	defer m.Close()
	o, err := equivalent.Read(m.Proto(), m)
	if err != nil {
		return nil, err
	}
	v, err := o.Vary(seed)
	if err != nil {
		return nil, err
	}
	folder, err := storage.Temporary("")
	if err != nil {
		return nil, err
	}
	defer folder.Remove()
	path := filepath.Join(folder.Path, "model.onnx")
	if err := m.Write(ctx, v.Model, path, model.WriteOptions{}); err != nil {
		return nil, err
	}
	if b, err = os.ReadFile(path); err != nil {
		return nil, err
	}
	p := &onnx.Model{}
	return &Graph{p, g.Runs, g.Rows}, proto.Unmarshal(b, p)
}
