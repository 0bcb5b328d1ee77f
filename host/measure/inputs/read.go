package inputs

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/npy"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
)

// readFile reads a .npz archive, or a folder of input_N.pb as ONNX's test data
// has.
func readFile(path string, g *graph.Graph) (map[string]array, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read inputs: %w", err)
	}
	if fi.IsDir() {
		return readFolder(path, g)
	}
	given, err := readNPZ(path)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, in := range g.Inputs {
		names = append(names, in.Name)
		switch t := onnx.Tensor_DataType(in.Type.GetTensorType().GetElemType()); t {
		case onnx.Tensor_FLOAT8E4M3FNUZ, onnx.Tensor_FLOAT8E5M2FNUZ, onnx.Tensor_FLOAT8E8M0:
			if a := given[in.Name]; a.element == oneByte {
				a.element = t
				given[in.Name] = a
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%s has an array %q, the model's inputs are %s", path, name, strings.Join(names, ", "))
		}
	}
	return given, nil
}

// readFolder reads input_0.pb, input_1.pb ...: for the input whose name a tensor
// carries, or else for the model's inputs in order.
func readFolder(folder string, g *graph.Graph) (map[string]array, error) {
	given := map[string]array{}
	for i, in := range g.Inputs {
		name := filepath.Join(folder, fmt.Sprintf("input_%d.pb", i))
		data, err := storage.ReadRegular(name, maxArrays)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("cannot read inputs: %w", err)
		}
		a, err := readTensor(data)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		to := in.Name
		if slices.ContainsFunc(g.Inputs, func(v *graph.Value) bool { return v.Name == a.Name }) {
			to = a.Name
		}
		if _, ok := given[to]; ok {
			return nil, fmt.Errorf("%s: a second tensor for input %s", name, to)
		}
		given[to] = array{onnx.Tensor_DataType(a.DataType), a.Shape, a.Data}
	}
	if len(given) == 0 {
		return nil, fmt.Errorf("%s has no input_0.pb; an ONNX test-data folder or a .npz file is read", folder)
	}
	return given, nil
}

// tensor is a tensor as raw bytes.
type tensor struct {
	Name     string // may be empty
	DataType int32
	Shape    []int64
	Data     []byte
}

// readTensor decodes a serialized TensorProto of a fixed-width type.
func readTensor(data []byte) (tensor, error) {
	t := &onnx.Tensor{}
	if err := proto.Unmarshal(data, t); err != nil {
		return tensor{}, fmt.Errorf("no serialized tensor: %w", err)
	}
	m := &onnx.Model{Graph: &onnx.Graph{Initializer: []*onnx.Tensor{t}}, IrVersion: proto.Int64(8)}
	whole, err := proto.Marshal(m)
	if err != nil {
		return tensor{}, err
	}
	parsed, err := model.Parse(whole, "")
	if err != nil {
		return tensor{}, err
	}
	raw, err := parsed.Data(parsed.Proto().Graph.Initializer[0])
	if err != nil {
		return tensor{}, err
	}
	return tensor{t.GetName(), t.GetDataType(), t.Dims, raw}, nil
}

var npyTypes = map[string]onnx.Tensor_DataType{
	"<f4": onnx.Tensor_FLOAT, "<f8": onnx.Tensor_DOUBLE, "<f2": onnx.Tensor_FLOAT16,
	"<i8": onnx.Tensor_INT64, "<i4": onnx.Tensor_INT32, "<i2": onnx.Tensor_INT16, "|i1": onnx.Tensor_INT8,
	"<u8": onnx.Tensor_UINT64, "<u4": onnx.Tensor_UINT32, "<u2": onnx.Tensor_UINT16, "|u1": onnx.Tensor_UINT8,
	"|b1": onnx.Tensor_BOOL,
	// Those of the package ml_dtypes, of which numpy says how many bytes an element has.
	"<V2": onnx.Tensor_BFLOAT16, "<f1": onnx.Tensor_FLOAT8E5M2, "<V1": oneByte,
}

// oneByte are the types of ml_dtypes that a file does not tell apart: the model's input says which it is.
const oneByte = onnx.Tensor_FLOAT8E4M3FN

// What arrays of files may take. Zeros compress 1,000 times, so that a file says little of what it holds: an archive
// may hold some that are compressed well, and in all a number of times its own size.
const (
	maxArrays    = 8 << 30
	arraysFree   = 64 << 20
	arraysFactor = 50
)

// readNPZ reads the arrays of a numpy archive by name.
func readNPZ(path string) (map[string]array, error) {
	file, err := storage.OpenRegular(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read inputs: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	z, err := zip.NewReader(file, info.Size())
	if err != nil {
		return nil, fmt.Errorf("%s is no .npz archive: %w", path, err)
	}
	given := map[string]array{}
	left := arraysFree + arraysFactor*info.Size()
	for _, f := range z.File {
		name := strings.TrimSuffix(f.Name, ".npy")
		if _, twice := given[name]; twice {
			return nil, fmt.Errorf("%s: %s: a second array of that name", path, f.Name)
		}
		a, err := readNPY(f, left)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", path, f.Name, err)
		}
		left -= int64(len(a.data))
		given[name] = a
	}
	return given, nil
}

// readNPY reads one of at most left bytes.
func readNPY(f *zip.File, left int64) (array, error) {
	r, err := f.Open()
	if err != nil {
		return array{}, err
	}
	defer r.Close()
	h, err := npy.ReadHeader(r)
	if err != nil {
		return array{}, err
	}
	t, ok := npyTypes[h.Type]
	if !ok {
		return array{}, fmt.Errorf("numpy type %s is not read", h.Type)
	}
	n := int64(1)
	for _, d := range h.Shape {
		if d > maxInputElements || d > 0 && n > maxInputElements/d {
			return array{}, fmt.Errorf("its shape %d is not read", h.Shape)
		}
		n *= d
	}
	size64 := n * int64(model.ElementBits(t)/8)
	if uint64(size64) > f.UncompressedSize64 {
		return array{}, fmt.Errorf("its data end early: shape %d needs %d bytes, the entry has %d", h.Shape, size64,
			f.UncompressedSize64)
	}
	if size64 > left {
		return array{}, fmt.Errorf("its %d bytes are more than the %d that an archive of this size may still hold; save "+
			"with np.savez, which does not compress", size64, max(left, 0))
	}
	data := make([]byte, size64)
	if _, err := io.ReadFull(r, data); err != nil {
		return array{}, fmt.Errorf("its data end early: %w", err)
	}
	return array{element: t, shape: h.Shape, data: h.Rows(data, model.ElementBits(t)/8)}, nil
}
