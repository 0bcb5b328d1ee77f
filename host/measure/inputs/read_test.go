package inputs

import (
	"archive/zip"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// TestReadNumpy: testdata/numpy.npz was written by numpy 2.4.6, see make_npz.py.
func TestReadNumpy(t *testing.T) {
	given := must.Value(readNPZ("testdata/numpy.npz"))(t)
	for name, want := range map[string]struct {
		element onnx.Tensor_DataType
		shape   []int64
		size    int
		last    float64
	}{
		"float32": {onnx.Tensor_FLOAT, []int64{2, 3}, 24, 2.5}, "float64": {onnx.Tensor_DOUBLE, []int64{2, 3}, 48, 2.5},
		"float16": {onnx.Tensor_FLOAT16, []int64{2, 3}, 12, 2.5}, "int64": {onnx.Tensor_INT64, []int64{4}, 32, -3},
		"int32": {onnx.Tensor_INT32, []int64{4}, 16, -3}, "int16": {onnx.Tensor_INT16, []int64{4}, 8, -3},
		"int8":   {onnx.Tensor_INT8, []int64{4}, 4, -3},
		"uint64": {onnx.Tensor_UINT64, []int64{2}, 16, 9}, "uint32": {onnx.Tensor_UINT32, []int64{2}, 8, 9},
		"uint16": {onnx.Tensor_UINT16, []int64{2}, 4, 9},
		"uint8":  {onnx.Tensor_UINT8, []int64{2}, 2, 9}, "bool": {onnx.Tensor_BOOL, []int64{3}, 3, 1},
		"scalar": {onnx.Tensor_FLOAT, nil, 4, 7}, "empty": {onnx.Tensor_FLOAT, []int64{2, 0, 4}, 0, 0},
	} {
		a, ok := given[name]
		if !ok || a.element != want.element || !slices.Equal(a.shape, want.shape) || len(a.data) != want.size {
			t.Errorf("%s: %v %v of %d bytes, want %v", name, a.element, a.shape, len(a.data), want)
			continue
		}
		if want.size > 0 {
			width := want.size / int(elements(want.shape))
			must.Equal(t, number(a.element, a.data[len(a.data)-width:]), want.last, name)
		}
	}
	must.Equal(t, len(given), 14)
}

// TestReadMLTypes: numpy writes the types of ml_dtypes (0.6.0) as so many bytes, and the model's inputs say which they
// are; bytes stay as they are.
func TestReadMLTypes(t *testing.T) {
	descr := map[onnx.Tensor_DataType]string{onnx.Tensor_BFLOAT16: "<V2", onnx.Tensor_FLOAT8E4M3FN: "<V1",
		onnx.Tensor_FLOAT8E4M3FNUZ: "<V1", onnx.Tensor_FLOAT8E5M2: "<f1", onnx.Tensor_FLOAT8E5M2FNUZ: "<V1",
		onnx.Tensor_FLOAT8E8M0: "<V1"}
	m, entries := &onnx.Model{Graph: &onnx.Graph{}}, map[string][]byte{}
	for element, as := range descr {
		name := element.String()
		m.Graph.Input = append(m.Graph.Input, &onnx.ValueInfo{Name: proto.String(name), Type: graph.TensorType(element, 2)})
		entries[name+".npy"] = npyOf(1, as, "False", "2,", []byte{1, 2, 3, 4}[:2*int(as[2]-'0')])
	}
	given := must.Value(readFile(npz(t, entries), must.Value(graph.New(m, nil))(t)))(t)
	for element := range descr {
		a := given[element.String()]
		must.Equal(t, a.element, element)
		must.Equal(t, len(a.data), 2*model.ElementBits(element)/8, element)
		must.Equal(t, a.data[1], 2, element)
	}
}

func elements(shape []int64) int64 {
	n := int64(1)
	for _, d := range shape {
		n *= d
	}
	return n
}

// number reads one element by its bytes alone.
func number(e onnx.Tensor_DataType, b []byte) float64 {
	bits := make([]byte, 8)
	copy(bits, b)
	u := binary.LittleEndian.Uint64(bits)
	switch e {
	case onnx.Tensor_FLOAT:
		return float64(math.Float32frombits(uint32(u)))
	case onnx.Tensor_DOUBLE:
		return math.Float64frombits(u)
	case onnx.Tensor_FLOAT16: // 2.5 alone
		return map[uint64]float64{0x4100: 2.5}[u]
	}
	shift := 64 - 8*len(b)
	return float64(int64(u<<shift) >> shift)
}

// npz writes an archive of entries as they are.
func npz(t *testing.T, entries map[string][]byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "inputs.npz")
	f := must.Value(os.Create(path))(t)
	z := zip.NewWriter(f)
	for name, data := range entries {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write(data)
		}
		must.Succeed(t, err)
	}
	must.Succeed(t, z.Close())
	f.Close()
	return path
}

// npyOf is an array in version 1 of the format, or 2.
func npyOf(version byte, descr, order, shape string, data []byte) []byte {
	head := fmt.Sprintf("{'descr': '%s', 'fortran_order': %s, 'shape': (%s), }\n", descr, order, shape)
	b := append([]byte("\x93NUMPY"), version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(head)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(head)))
	}
	return append(append(b, head...), data...)
}

func TestReadBadNumpy(t *testing.T) {
	eight := make([]byte, 8)
	cases := []struct {
		name string
		data []byte
		want string
	}{
		{"not an array", []byte("hello, this is no array"), "it is no NumPy array"},
		{"cut in the header", npyOf(1, "<f4", "False", "2,", eight)[:20], "EOF"},
		{"cut in the data", npyOf(1, "<f4", "False", "3,", eight), "its data end early"},
		{"big-endian", npyOf(1, ">f4", "False", "2,", eight), "numpy type >f4 is not read"},
		{"objects", npyOf(1, "|O", "False", "2,", eight), "numpy type |O is not read"},
		{"negative", npyOf(1, "<f4", "False", "-2,", eight), "shape (-2,) is not read"},
		{"too many elements", npyOf(1, "<f4", "False", "4294967296, 4294967296", eight), "is not read"},
		{"more than there is", npyOf(1, "<f4", "False", "2147483647,", eight),
			"its data end early: shape [2147483647] needs 8589934588 bytes, the entry has"},
		{"a header of garbage", npyOf(1, "'", "?", "", nil), "a head that is not understood"},
		{"a huge header", append([]byte("\x93NUMPY\x02\x00"), 255, 255, 255, 127), "a head of 2147483647 bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := npz(t, map[string][]byte{"x.npy": c.data})
			_, err := readNPZ(path)
			must.Fail(t, err, c.want, path+": x.npy: ")
		})
	}
	if given, err := readNPZ(npz(t, map[string][]byte{"x.npy": npyOf(2, "<f4", "False", "2,", eight)})); err != nil ||
		len(given["x"].data) != 8 {
		t.Errorf("version 2 of the format: %v, %v", given, err)
	}
	byColumns := npyOf(1, "|u1", "True", "2, 3", []byte("adbecf"))
	columns := must.Value(readNPZ(npz(t, map[string][]byte{"x.npy": byColumns})))(t)
	must.Equal(t, string(columns["x"].data), "abcdef")
	text := filepath.Join(t.TempDir(), "x.npz")
	must.Succeed(t, os.WriteFile(text, []byte("no archive"), 0o644))
	must.Fail(t, must.Error(readNPZ(text)), "is no .npz archive")
}

// TestGivenInputs: arrays go where they are named, lengths that they have hold
// for inputs that are made, and what does not fit is said.
func TestGivenInputs(t *testing.T) {
	path := decoder(t)
	ids := npyOf(1, "<i8", "False", "3, 2", make([]byte, 48))
	good := npz(t, map[string][]byte{"input_ids.npy": ids})
	_, infos := made(t, path, Options{File: good, Dims: map[string]int64{"past": 5}})
	must.Equal(t, infos["input_ids"].From, good)
	for name, want := range map[string]string{"position_ids": "[3 2]", "attention_mask": "[3 7]",
		"past_key_values.0.key": "[3 2 5 4]"} {
		must.Equal(t, fmt.Sprint(infos[name].Shape), want, name)
	}
	// The mask's length is the past's and the new tokens' together.
	_, infos = made(t, path, Options{File: npz(t,
		map[string][]byte{"input_ids.npy": ids, "attention_mask.npy": npyOf(1, "<i8", "False", "3, 9", make([]byte, 216))})})
	must.Equal(t, fmt.Sprint(infos["past_key_values.0.key"].Shape), "[3 2 7 4]")
	cases := []struct {
		name string
		npz  map[string][]byte
		dims map[string]int64
		want string
	}{
		{"name", map[string][]byte{"ids.npy": ids}, nil,
			`has an array "ids", the model's inputs are input_ids, token_type_ids`},
		{"type", map[string][]byte{"input_ids.npy": npyOf(1, "<i4", "False", "3, 2", make([]byte, 24))}, nil,
			"as int32, the model takes int64"},
		{"rank", map[string][]byte{"input_ids.npy": npyOf(1, "<i8", "False", "6,", make([]byte, 48))}, nil,
			"in shape [6], the model takes rank 2"},
		{"length", map[string][]byte{"input_ids.npy": ids}, map[string]int64{"batch": 4},
			"in shape [3 2], but axis 0 is batch_size = 4"},
		{"fixed length", map[string][]byte{"use_cache_branch.npy": npyOf(1, "|b1", "False", "2,", make([]byte, 2))}, nil,
			"in shape [2], but axis 0 is 1 = 1"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Make(library(t), path, Options{File: npz(t, c.npz), Dims: c.dims})
			must.Fail(t, err, c.want)
		})
	}
}

// testData writes a folder of tensors as ONNX's test data has them.
func testData(t *testing.T, tensors map[string]*onnx.Tensor) string {
	t.Helper()
	folder := t.TempDir()
	for file, tensor := range tensors {
		data, err := proto.Marshal(tensor)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, file), data, 0o644)
		}
		must.Succeed(t, err)
	}
	return folder
}

func TestReadFolder(t *testing.T) {
	two := write(t, []value{{name: "a", dims: []any{"n"}}, {name: "b", dims: []any{"n"}}},
		[]value{{name: "y", dims: []any{"n"}}}, nil, "y = Sub(a, b)")
	tensor := func(name string, data ...float32) *onnx.Tensor {
		return &onnx.Tensor{Name: proto.String(name), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
			Dims: []int64{int64(len(data))}, FloatData: data}
	}
	for name, folder := range map[string]string{
		"in order": testData(t, map[string]*onnx.Tensor{"input_0.pb": tensor("", 1, 2), "input_1.pb": tensor("", 3, 4)}),
		"by name": testData(t,
			map[string]*onnx.Tensor{"input_0.pb": tensor("b", 3, 4), "input_1.pb": tensor("a", 1, 2)}),
		"other names": testData(t,
			map[string]*onnx.Tensor{"input_0.pb": tensor("first", 1, 2), "input_1.pb": tensor("second", 3, 4)}),
		"with outputs": testData(t,
			map[string]*onnx.Tensor{"input_0.pb": tensor("a", 1, 2), "input_1.pb": tensor("b", 3, 4),
				"output_0.pb": tensor("y", 0, 0)}),
	} {
		values, _ := made(t, two, Options{File: folder})
		if a, b := data[float32](t, values["a"]), data[float32](t, values["b"]); !slices.Equal(a, []float32{1, 2}) ||
			!slices.Equal(b, []float32{3, 4}) {
			t.Errorf("%s: a is %v, b is %v", name, a, b)
		}
	}
	broken := t.TempDir()
	must.Succeed(t, os.WriteFile(filepath.Join(broken, "input_0.pb"), []byte("\xff\xff\xff"), 0o644))
	for want, folder := range map[string]string{
		"has no input_0.pb":         t.TempDir(),
		"input_0.pb: no serialized": broken,
		"a second tensor for input a": testData(t,
			map[string]*onnx.Tensor{"input_0.pb": tensor("a", 1), "input_1.pb": tensor("a", 2)}),
		"no such file or directory": filepath.Join(t.TempDir(), "nowhere"),
		"input_0.pb: model bytes: ten": testData(t,
			map[string]*onnx.Tensor{"input_0.pb": {DataType: proto.Int32(1), Dims: []int64{5}, FloatData: []float32{1}}}),
	} {
		must.Fail(t, must.Error(Make(library(t), two, Options{File: folder})), want)
	}
}
