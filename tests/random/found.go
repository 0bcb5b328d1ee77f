package random

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// Write writes a graph into a folder as ONNX's test data: the model, and the inputs of each run.
func (g *Graph) Write(folder string) error {
	put := func(m proto.Message, path ...string) error {
		b, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		to := filepath.Join(append([]string{folder}, path...)...)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o644)
	}
	if err := put(g.Model, "model.onnx"); err != nil {
		return err
	}
	for i, feed := range g.Runs {
		for j, name := range slices.Sorted(maps.Keys(feed)) {
			a := feed[name]
			t := &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(a.Kind)), Dims: a.Shape, RawData: a.Data}
			if err := put(t, fmt.Sprintf("test_data_set_%d", i), fmt.Sprintf("input_%d.pb", j)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Read reads what Write wrote.
func Read(folder string) (*Graph, error) {
	get := func(path string, to proto.Message) error {
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return proto.Unmarshal(b, to)
	}
	g := &Graph{Model: &onnx.Model{}}
	if err := get(filepath.Join(folder, "model.onnx"), g.Model); err != nil {
		return nil, err
	}
	sets, err := filepath.Glob(filepath.Join(folder, "test_data_set_*"))
	if err != nil {
		return nil, err
	}
	for _, set := range sets {
		files, err := os.ReadDir(set)
		if err != nil {
			return nil, err
		}
		feed := Feed{}
		for _, f := range files {
			if !strings.HasSuffix(f.Name(), ".pb") {
				continue
			}
			t := &onnx.Tensor{}
			if err := get(filepath.Join(set, f.Name()), t); err != nil {
				return nil, err
			}
			feed[t.GetName()] = Array{onnx.Tensor_DataType(t.GetDataType()), t.Dims, t.RawData}
		}
		g.Runs = append(g.Runs, feed)
	}
	if len(g.Runs) == 0 {
		return nil, fmt.Errorf("%s: found no test_data_set_*, needed is one", folder)
	}
	return g, nil
}
