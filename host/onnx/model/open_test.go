package model

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

func TestSmallTensorsAreInlineAndLargeOnesReferTo(t *testing.T) {
	_, large := floats(1, 2000)
	_, small := floats(2, 1000)
	b := encode(t, modelOf(graphOf(
		rawTensor("large", onnx.Tensor_FLOAT, large, 40, 50),
		rawTensor("small", onnx.Tensor_FLOAT, small, 1000),
	)))
	m := mustOpen(t, writeFile(t, filepath.Join(t.TempDir(), "m.onnx"), b))
	g := m.Proto().GetGraph()
	if l := g.Initializer[0]; !refers(m, l) || len(l.RawData) != 0 {
		t.Error("the large tensor was copied")
	} else if !bytes.Equal(mustData(t, m, l), large) {
		t.Error("the large tensor reads differently")
	}
	if s := g.Initializer[1]; refers(m, s) || !bytes.Equal(s.RawData, small) {
		t.Error("the small tensor is not inline")
	}
	if clone := proto.Clone(g.Initializer[0]).(*onnx.Tensor); !bytes.Equal(mustData(t, m, clone), large) {
		t.Error("a clone reads differently")
	}
}

func TestParseGivesViewsOfTheCallersBytes(t *testing.T) {
	_, large := floats(1, 2000)
	b := encode(t, modelOf(graphOf(rawTensor("w", onnx.Tensor_FLOAT, large, 2000))))
	m := mustParse(t, b, "")
	at := bytes.Index(b, large)
	if got := mustData(t, m, m.Proto().GetGraph().Initializer[0]); &got[0] != &b[at] {
		t.Error("the tensor was copied")
	}
}

// Every way to store the same numbers reads the same, short and long.
func TestEncodings(t *testing.T) {
	pack := func(num protowire.Number, values []uint64) []byte {
		var v []byte
		for _, x := range values {
			v = protowire.AppendVarint(v, x)
		}
		return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), v)
	}
	unpack := func(num protowire.Number, values []uint64) []byte {
		var b []byte
		for _, x := range values {
			b = protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), x)
		}
		return b
	}
	for _, n := range []int{6, 4098} { // below and above Limits.Inline
		values := make([]uint64, n)
		var want []int64
		for i := range values {
			v := int64(i%251) - 125
			values[i] = uint64(v)
			want = append(want, v)
		}
		var fixed []byte
		for _, v := range want {
			fixed = protowire.AppendFixed32(fixed, math.Float32bits(float32(v)))
		}
		float := protowire.AppendBytes(protowire.AppendTag(nil, fieldFloatData, protowire.BytesType), fixed)
		var float1, double1 []byte
		for _, v := range want {
			float1 = protowire.AppendFixed32(protowire.AppendTag(float1, fieldFloatData, protowire.Fixed32Type),
				math.Float32bits(float32(v)))
			double1 = protowire.AppendFixed64(protowire.AppendTag(double1, fieldDoubleData, protowire.Fixed64Type),
				math.Float64bits(float64(v)))
		}
		half := len(values) / 2
		cases := []struct {
			name     string
			dataType onnx.Tensor_DataType
			data     []byte
			refers   bool // when long
		}{
			{"int64_data packed", onnx.Tensor_INT64, pack(fieldInt64Data, values), true},
			{"int64_data unpacked", onnx.Tensor_INT64, unpack(fieldInt64Data, values), false},
			{"int64_data in two runs", onnx.Tensor_INT64,
				append(pack(fieldInt64Data, values[:half]), pack(fieldInt64Data, values[half:])...), false},
			{"int64_data long then one", onnx.Tensor_INT64,
				append(pack(fieldInt64Data, values[:n-1]), unpack(fieldInt64Data, values[n-1:])...), false},
			{"int64_data one then long", onnx.Tensor_INT64,
				append(unpack(fieldInt64Data, values[:1]), pack(fieldInt64Data, values[1:])...), false},
			{"int32_data of int32", onnx.Tensor_INT32, pack(fieldInt32Data, values), true},
			{"int32_data of int8", onnx.Tensor_INT8, pack(fieldInt32Data, values), true},
			{"int32_data of int16", onnx.Tensor_INT16, pack(fieldInt32Data, values), true},
			{"float_data packed", onnx.Tensor_FLOAT, float, true},
			{"float_data unpacked", onnx.Tensor_FLOAT, float1, false},
			{"double_data unpacked", onnx.Tensor_DOUBLE, double1, false},
			{"raw_data given twice, the last counts", onnx.Tensor_INT64, append(
				protowire.AppendBytes(protowire.AppendTag(nil, fieldRawData, protowire.BytesType), []byte("other")),
				protowire.AppendBytes(protowire.AppendTag(nil, fieldRawData, protowire.BytesType), int64Bytes(want...))...), false},
			{"raw_data with an empty float_data", onnx.Tensor_INT64, append(
				protowire.AppendBytes(protowire.AppendTag(nil, fieldFloatData, protowire.BytesType), nil),
				protowire.AppendBytes(protowire.AppendTag(nil, fieldRawData, protowire.BytesType), int64Bytes(want...))...), true},
		}
		for _, c := range cases {
			t.Run(c.name+" "+strconv.Itoa(n), func(t *testing.T) {
				b := pack(fieldDims, []uint64{2, uint64(n / 2)})
				b = protowire.AppendVarint(protowire.AppendTag(b, fieldDataType, protowire.VarintType), uint64(c.dataType))
				// The payload in the middle, the name after it.
				b = append(b, c.data...)
				b = protowire.AppendString(protowire.AppendTag(b, fieldName, protowire.BytesType), "t")
				m := mustParse(t, rawModel(b), "")
				tensor := m.Proto().GetGraph().Initializer[0]
				must.Equal(t, refers(m, tensor), (c.refers && n > 4096))
				got := must.Value(m.Float64s(tensor, n))(t)
				for i, v := range got {
					if v != float64(want[i]) {
						t.Fatalf("element %d is %v, want %v", i, v, want[i])
					}
				}
				if ElementBits(c.dataType) > 0 && c.dataType != onnx.Tensor_FLOAT && c.dataType != onnx.Tensor_DOUBLE {
					ints, err := m.Int64s(tensor, n)
					must.Succeed(t, err)
					must.Equal(t, ints[n-1], want[n-1])
				}
			})
		}
	}
}

// nested is a model with large tensors in every place that can hold one.
func nested(t testing.TB) *onnx.Model {
	big := func(name string, seed uint64) *onnx.Tensor {
		_, b := floats(seed, 1500)
		return rawTensor(name, onnx.Tensor_FLOAT, b, 1500)
	}
	branch := graphOf(big("branch weight", 3))
	branch.Node = []*onnx.Node{constantNode("branch constant", big("", 4))}
	branch.Output = []*onnx.ValueInfo{{Name: proto.String("branch constant")}}
	inner := graphOf(big("inner weight", 5))
	branch.Node = append(branch.Node, ifNode(inner))
	g := graphOf(big("weight", 6), rawTensor("empty", onnx.Tensor_FLOAT, nil, 0, 3),
		rawTensor("scalar", onnx.Tensor_INT64, int64Bytes(-7)))
	g.Node = []*onnx.Node{constantNode("constant", big("", 7)), ifNode(branch)}
	words := &onnx.Tensor{Name: proto.String("words"), DataType: proto.Int32(int32(onnx.Tensor_STRING)), Dims: []int64{2},
		StringData: [][]byte{[]byte("a"), bytes.Repeat([]byte("b"), 9000)}}
	g.Initializer = append(g.Initializer, words)
	_, values := floats(8, 1200)
	indices := make([]int64, 1200)
	for i := range indices {
		indices[i] = int64(2 * i)
	}
	g.SparseInitializer = []*onnx.SparseTensor{{Dims: []int64{4000},
		Values:  rawTensor("sparse", onnx.Tensor_FLOAT, values, 1200),
		Indices: rawTensor("", onnx.Tensor_INT64, int64Bytes(indices...), 1200)}}
	p := modelOf(g)
	p.Functions = []*onnx.Function{{Name: proto.String("f"), Domain: proto.String("d"),
		Node: []*onnx.Node{constantNode("function constant", big("", 9))}}}
	p.MetadataProps = []*onnx.Entry{entryOf("k", "v")}
	return p
}

func TestTensorsInSubgraphsFunctionsAndAttributes(t *testing.T) {
	p := nested(t)
	m := mustParse(t, encode(t, p), "")
	for name, got := range allTensors(m.Proto()) {
		long := got.GetDataType() != int32(onnx.Tensor_STRING) && name != "empty" && name != "scalar"
		must.Equal(t, refers(m, got), long, name, !long)
		want := allTensors(p)[name]
		if long && !bytes.Equal(mustData(t, m, got), want.RawData) {
			t.Errorf("%q reads differently", name)
		}
	}
	// Apart from payloads the structure is the same.
	bare := proto.Clone(p).(*onnx.Model)
	for name, b := range allTensors(bare) {
		if r := allTensors(m.Proto())[name]; refers(m, r) {
			b.RawData, r.DataLocation, r.ExternalData = nil, nil, nil
		}
	}
	if !proto.Equal(bare, m.Proto()) {
		t.Error("the structure changed")
	}
}

func TestAFileCannotForgeReferences(t *testing.T) {
	w := rawTensor("w", onnx.Tensor_FLOAT, make([]byte, 8), 2)
	w.ExternalData = []*onnx.Entry{entryOf(refKey, "0")}
	m := mustParse(t, encode(t, modelOf(graphOf(w))), "")
	if got := m.Proto().GetGraph().Initializer[0]; len(got.ExternalData) != 0 || refers(m, got) {
		t.Error("the entry of the file came through")
	}
	w.DataLocation, w.RawData = onnx.Tensor_EXTERNAL.Enum(), nil
	_, err := Parse(encode(t, modelOf(graphOf(w))), t.TempDir())
	wantError(t, err,
		`model bytes: external data has a location that is not allowed: found "", which is empty, needed a path inside the model's folder; do not trust this model, or save it anew with its data beside it`)
}

func TestUnknownFieldsTravelThrough(t *testing.T) {
	b := encode(t, modelOf(graphOf(rawTensor("w", onnx.Tensor_FLOAT, make([]byte, 4), 1))))
	b = protowire.AppendBytes(protowire.AppendTag(b, 20, protowire.BytesType), []byte("training"))
	m := mustParse(t, b, "")
	s, err := m.Serialize(m.Proto(), SerializeOptions{})
	if err != nil || !bytes.Contains(s.Bytes, []byte("training")) {
		t.Errorf("training information is gone (%v)", err)
	}
}

func TestANewerFormatIsNoError(t *testing.T) {
	p := modelOf(graphOf(rawTensor("w", onnx.Tensor_DataType(99), noise(1, 5000), 77)))
	p.IrVersion = proto.Int64(1000)
	m := mustParse(t, encode(t, p), "")
	must.Equal(t, len(mustData(t, m, m.Proto().GetGraph().Initializer[0])), 5000)
}

// A sparse file of 6 GB stands for a model whose weights must not be touched.
func TestLargeModelsOpenQuicklyInLittleMemory(t *testing.T) {
	const tensors, each = 96, 64 << 20
	inline := func(t *testing.T, dir string) string {
		// 1.9 GB in one file: headers are written, the weights between are holes.
		path := filepath.Join(dir, "m.onnx")
		f := must.Value(os.Create(path))(t)
		defer f.Close()
		const each = 63 << 20
		var heads [][]byte
		var graph uint64
		for i := range 30 {
			h := &onnx.Tensor{Name: proto.String("w" + strconv.Itoa(i)), DataType: proto.Int32(1), Dims: []int64{each / 4}}
			b, _ := proto.Marshal(h)
			b = protowire.AppendVarint(protowire.AppendTag(b, fieldRawData, protowire.BytesType), each)
			b = append(protowire.AppendVarint(protowire.AppendTag(nil, 5, protowire.BytesType), uint64(len(b)+each)), b...)
			heads = append(heads, b)
			graph += uint64(len(b)) + each
		}
		at, _ := f.Write(protowire.AppendVarint([]byte{0x08, 8, 0x3a}, graph))
		for _, h := range heads {
			must.Value(f.WriteAt(h, int64(at)))(t)
			at += len(h) + each
		}
		must.Succeed(t, f.Truncate(int64(at)))
		return path
	}
	external := func(t *testing.T, dir string) string {
		f := must.Value(os.Create(filepath.Join(dir, "w.bin")))(t)
		defer f.Close()
		must.Succeed(t, f.Truncate(tensors*each))
		g := graphOf()
		for i := range int64(tensors) {
			g.Initializer = append(g.Initializer, externalTensor("w"+strconv.FormatInt(i, 10), "w.bin", i*each, each, each/4))
		}
		return writeFile(t, filepath.Join(dir, "m.onnx"), encode(t, modelOf(g)))
	}
	for name, make := range map[string]func(*testing.T, string) string{"external 6 GB": external,
		"inline 1.9 GB": inline} {
		t.Run(name, func(t *testing.T) {
			path := make(t, t.TempDir())
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			start := time.Now()
			m := mustOpen(t, path)
			s, err := m.Serialize(m.Proto(), SerializeOptions{})
			took := time.Since(start)
			runtime.ReadMemStats(&after)
			must.Succeed(t, err)
			if took > 2*time.Second {
				t.Errorf("took %v", took)
			}
			if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
				t.Errorf("allocated %d bytes", n)
			}
			if s.Referred < 1890<<20 || len(s.Bytes) > 1<<20 {
				t.Errorf("%d bytes referred to, %d encoded", s.Referred, len(s.Bytes))
			}
			if b := mustData(t, m, m.Proto().GetGraph().Initializer[29]); b[len(b)-1] != 0 {
				t.Error("a hole does not read as zero")
			}
		})
	}
}

// refers reports whether a tensor's elements lie outside the proto.
func refers(m *Model, t *onnx.Tensor) bool {
	_, ok, err := m.reference(t)
	return ok && err == nil
}
