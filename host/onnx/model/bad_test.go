package model

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// What is no ONNX model is named for what it is.
func TestFilesThatAreNoModel(t *testing.T) {
	cases := []struct{ name, content, want string }{
		{"empty", "", "the file is empty, needed an ONNX model; fetch or export it again"},
		{"lfs", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
			"not an ONNX model: found a Git LFS pointer, needed an ONNX model; this is a Git LFS pointer; fetch the file " +
				"with git lfs pull"},
		{"ort", "\x24\x00\x00\x00ORTM\x00\x00",
			"not an ONNX model: found a model in ORT format, needed an ONNX model; an .ort file cannot be patched: give the " +
				".onnx file that it was made from"},
		{"png", "\x89PNG\r\n\x1a\n", "not an ONNX model: found a PNG image, needed an ONNX model; give the path of an " +
			".onnx file"},
		{"zip", "PK\x03\x04....", "not an ONNX model: found a zip archive (PyTorch checkpoints are such too), needed an " +
			"ONNX model; unpack it, or export the checkpoint to ONNX"},
		{"html", "<!DOCTYPE html><html>",
			"not an ONNX model: found a web page, needed an ONNX model; fetch the file itself rather than the page about it"},
		{"safetensors", "\x10\x00\x00\x00\x00\x00\x00\x00{\"a\":1}",
			"not an ONNX model: found a safetensors file, needed an ONNX model; export the model to ONNX"},
		{"text", "hello, world\n",
			`not an ONNX model: found text that begins with "hello, world", needed an ONNX model; give the path of an .onnx file`},
		{"json", "{\"a\": 1}",
			`not an ONNX model: found text that begins with "{\"a\": 1}", needed an ONNX model; give the path of an .onnx file`},
		{"bytes", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
			"not an ONNX model: found a file that begins with the bytes ff ff ff ff ff ff ff ff, needed an ONNX model; give " +
				"the path of an .onnx file"},
		{"no graph", "\x08\x08", "holds no graph: found 2 bytes without one, needed an ONNX model with a graph; the file " +
			"is damaged or incomplete: fetch or export it again"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := writeFile(t, filepath.Join(t.TempDir(), "m.onnx"), []byte(c.content))
			_, err := Open(path)
			wantError(t, err, path+": "+c.want)
		})
	}
}

func TestPathsThatAreNoFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must.Succeed(t, syscall.Mkfifo(at("pipe"), 0o600))
	for link, to := range map[string]string{"nowhere": "gone", "circle": "circle"} {
		must.Succeed(t, os.Symlink(to, at(link)))
	}
	cases := []struct{ path, want string }{
		{dir, "is a folder, needed an ONNX file; name the .onnx file inside it"},
		{at("pipe"), "is not a regular file: found p---------, needed a file; copy it to a file first"},
		{at("gone"), "cannot open the file: found no such file or directory; check the path"},
		{at("nowhere"), "cannot open the file: found no such file or directory; check the path"},
		{at("circle"), "cannot open the file: found links that lead in a circle; point them at the file"},
	}
	for _, c := range cases {
		_, err := Open(c.path)
		wantError(t, err, c.path+": "+c.want)
	}
	must.Fail(t, must.Error(Open(at("gone"))), fs.ErrNotExist)
	must.FailExactly(t, must.Error(Open("")), "no path was given, needed the path of an .onnx file; name the model")
	if os.Getuid() != 0 {
		secret := writeFile(t, at("secret"), []byte("x"))
		must.Succeed(t, os.Chmod(secret, 0))
		_, err := Open(secret)
		wantError(t, err, secret+": cannot open the file: found permission denied; check the permissions of the file and "+
			"its folder")
	}
}

// tensorBytes encodes a tensor from its fields in the order given.
func tensorBytes(fields ...[]byte) []byte { return bytes.Join(fields, nil) }

func varintField(num protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, num, protowire.VarintType), v)
}

func bytesField(num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, num, protowire.BytesType), v)
}

func TestDamagedAndHostileTensors(t *testing.T) {
	name := bytesField(fieldName, []byte("w"))
	float := varintField(fieldDataType, uint64(onnx.Tensor_FLOAT))
	minus1 := uint64(math.MaxUint64)
	const again = "; the file is damaged or incomplete: fetch or export it again"
	const limit = "; raise the limit in model.Limits if the model is trusted"
	cases := []struct {
		name   string
		tensor []byte
		want   string
	}{
		{"negative dimension", tensorBytes(name, float, varintField(1, minus1), bytesField(fieldRawData, make([]byte, 4))),
			`tensor "w" has a negative dimension: found [-1], needed zero or more in every place; the file is damaged or incomplete: fetch or export it again`},
		{"product overflows", tensorBytes(name, float, varintField(1, 1<<32), varintField(1, 1<<32)),
			`tensor "w" has more elements than can be counted: found [4294967296 4294967296], needed a product below 2^63; the file is damaged or incomplete: fetch or export it again`},
		{"product overflows beside a zero",
			tensorBytes(name, float, varintField(1, 0), varintField(1, 1<<40), varintField(1, 1<<40)),
			`tensor "w" has more elements than can be counted: found [0 1099511627776 1099511627776], needed a product below 2^63; the file is damaged or incomplete: fetch or export it again`},
		{"too many elements", tensorBytes(name, float, varintField(1, 1<<41)),
			`tensor "w" has too many elements: found [2199023255552], needed at most 1099511627776` + limit},
		{"rank", tensorBytes(name, float, bytesField(1, bytes.Repeat([]byte{1}, 65))),
			`tensor "w" has too many dimensions: found more than 64, needed at most 64` + limit},
		{"too short", tensorBytes(name, float, varintField(1, 2), bytesField(fieldRawData, make([]byte, 4))),
			`tensor "w" does not hold what its shape says: found 4 bytes, needed 8 for float32 [2]` + again},
		{"too short, long", tensorBytes(name, float, varintField(1, 2000), bytesField(fieldRawData, make([]byte, 7999))),
			`tensor "w" does not hold what its shape says: found 7999 bytes, needed 8000 for float32 [2000]` + again},
		{"no data", tensorBytes(name, float, varintField(1, 2)),
			`tensor "w" holds no data, needed 2 elements of float32` + again},
		{"wrong field", tensorBytes(name, float, varintField(1, 2), bytesField(fieldInt32Data, []byte{1, 2})),
			`tensor "w" does not hold what its shape says: found data in field 5, needed field 4 or raw data for float32 [2]` +
				again},
		{"two payloads", tensorBytes(name, float, bytesField(fieldRawData, make([]byte, 4)),
			bytesField(fieldFloatData, make([]byte, 4))),
			`tensor "w" holds its data twice: found fields 9 and 4, needed one of them` + again},
		{"packed floats of odd length", tensorBytes(name, float, bytesField(fieldFloatData, make([]byte, 5))),
			"is truncated or damaged: a tensor is broken at byte 13: found 5 bytes of packed values of 4 bytes" + again},
		{"value count", tensorBytes(name, float, bytesField(fieldFloatData, make([]byte, 8))),
			`tensor "w" does not hold what its shape says: found 2 values, needed 1 for float32 []` + again},
		{"long varints too few", tensorBytes(name, varintField(fieldDataType, 7), varintField(1, 5001),
			bytesField(fieldInt64Data, make([]byte, 5000))),
			`tensor "w" does not hold what its shape says: found 5000 bytes of varints, needed 5001 values for int64 [5001]` +
				again},
		{"data location", tensorBytes(name, float, varintField(fieldDataLocation, 7)),
			"is truncated or damaged: a tensor is broken at byte 12: found 7 in field 14" + again},
		{"wire type of dims", tensorBytes(name,
			protowire.AppendFixed32(protowire.AppendTag(nil, 1, protowire.Fixed32Type), 1)),
			"is truncated or damaged: a tensor is broken at byte 10: found field 1 with wire type 5" + again},
		{"group", tensorBytes(name, protowire.AppendTag(nil, 30, protowire.StartGroupType)),
			"is truncated or damaged: a tensor is broken at byte 11: found field 30 with wire type 3" + again},
		{"length beyond the end", tensorBytes(name, float, []byte{0x4a, 0x7f, 0}),
			"is truncated or damaged: field 9 of a tensor at byte 12 is cut off: found 1 bytes, needed 127" + again},
		{"enormous length", tensorBytes(name, float, protowire.AppendVarint([]byte{0x4a}, math.MaxUint64)),
			"is truncated or damaged: field 9 of a tensor at byte 12 is cut off: found 0 bytes, needed 18446744073709551615" +
				again},
		{"name", bytesField(fieldName, bytes.Repeat([]byte("n"), 1<<16+1)),
			"a name in a tensor is too long: found 65537 bytes, needed at most 65536" + limit},
		{"strings by raw data", tensorBytes(name, varintField(fieldDataType, 8), bytesField(fieldRawData, []byte("a"))),
			`tensor "w" does not hold what its shape says: found raw data, needed strings for string []` + again},
		{"half a byte", tensorBytes(name, varintField(fieldDataType, 22), varintField(1, 3),
			bytesField(fieldRawData, []byte{1})),
			`tensor "w" does not hold what its shape says: found 1 bytes, needed 2 for int4 [3]` + again},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse(rawModel(c.tensor), "")
			wantError(t, err, "model bytes: "+c.want)
		})
	}
}

// A count of varints that opening left open is made when they are read.
func TestLongVarintsAreCountedWhenRead(t *testing.T) {
	b := rawModel(tensorBytes(bytesField(fieldName, []byte("w")), varintField(fieldDataType, 7), varintField(1, 3000),
		bytesField(fieldInt64Data, make([]byte, 5000))))
	m := mustParse(t, b, "")
	_, err := m.Data(m.Proto().GetGraph().Initializer[0])
	wantError(t, err,
		`model bytes: tensor "w" is damaged: found 5000 values where 3000 belong; the file is damaged or incomplete: fetch or export it again`)
}

func TestLimits(t *testing.T) {
	deep := graphOf()
	for range 4 {
		g := graphOf()
		g.Node = []*onnx.Node{ifNode(deep)}
		deep = g
	}
	typ := &onnx.Type{}
	for range 5 {
		typ = &onnx.Type{Value: &onnx.Type_SequenceType{SequenceType: &onnx.Type_Sequence{ElemType: typ}}}
	}
	typed := graphOf()
	typed.Input = []*onnx.ValueInfo{{Type: typ}}
	wide := graphOf(rawTensor("a", onnx.Tensor_FLOAT, make([]byte, 4)), rawTensor("b", onnx.Tensor_FLOAT, make([]byte, 4)))
	wide.Node = []*onnx.Node{{OpType: proto.String("Add")}, {OpType: proto.String("Mul")}}
	const fix = "; raise the limit in model.Limits if the model is trusted"
	cases := []struct {
		name   string
		graph  *onnx.Graph
		limits Limits
		want   string
	}{
		{"nodes", wide, Limits{Nodes: 1}, "has too many nodes: found more than 1, needed at most 1"},
		{"tensors", wide, Limits{Tensors: 1}, "has too many tensors: found more than 1, needed at most 1"},
		{"graphs in graphs", deep, Limits{Depth: 4},
			"graphs are nested too deeply: found 5 levels or more, needed at most 4"},
		{"types in types", typed, Limits{Depth: 4}, "types are nested too deeply: found 5 levels or more, needed at most 4"},
		{"names", wide, Limits{NameLength: 2}, "a name in a node is too long: found 3 bytes, needed at most 2"},
		{"memory", wide, Limits{Memory: 500},
			"needs too much memory apart from its weights: found more than 500 bytes, needed at most 500"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			b := encode(t, modelOf(c.graph))
			_, err := Parse(b, "", c.limits)
			wantError(t, err, "model bytes: "+c.want+fix)
			must.Value(Parse(b, ""))(t, "the defaults refuse it")
		})
	}
}

// Two bytes a node must not become gigabytes.
func TestSmallFilesDoNotBecomeLargeInMemory(t *testing.T) {
	g := bytes.Repeat([]byte{0x0a, 0}, 1<<20+1)
	_, err := Parse(append([]byte{8, 8}, bytesField(7, g)...), "")
	wantError(t, err, "model bytes: has too many nodes: found more than 1048576, needed at most 1048576; raise the "+
		"limit in model.Limits if the model is trusted")
	g = bytes.Repeat([]byte{0x5a, 0}, 1<<19) // inputs: a megabyte, 128 when decoded
	_, err = Parse(append([]byte{8, 8}, bytesField(7, g)...), "", Limits{Memory: 64 << 20})
	wantError(t, err, "model bytes: needs too much memory apart from its weights: found more than 67108864 bytes, "+
		"needed at most 67108864; raise the limit in model.Limits if the model is trusted")
}

func TestOneTensorGivenTwiceInAnAttributeIsRefused(t *testing.T) {
	tensor := bytesField(5, tensorBytes(varintField(fieldDataType, 1), bytesField(fieldRawData, make([]byte, 4))))
	node := bytesField(5, append(tensor, tensor...))
	b := append([]byte{8, 8}, bytesField(7, bytesField(1, node))...)
	_, err := Parse(b, "")
	wantError(t, err, "model bytes: is truncated or damaged: an attribute is broken at byte 18: found field 5 twice; "+
		"the file is damaged or incomplete: fetch or export it again")
}

// smallNested is nested with tensors short enough that every byte can be tried.
func smallNested(t testing.TB) *onnx.Model {
	p := nested(t)
	for _, x := range allTensors(p) {
		switch n := len(x.GetRawData()); {
		case n > 64 && x.GetDataType() == int32(onnx.Tensor_FLOAT):
			x.RawData, x.Dims = x.RawData[:40], []int64{10}
		case n > 64:
			x.RawData, x.Dims = x.RawData[:80], []int64{10}
		}
		for i, s := range x.StringData {
			x.StringData[i] = s[:1]
		}
	}
	return p
}

// Whatever is cut off or flipped, the answer is a model or one *diagnostic.Error.
func TestEveryTruncationAndBitFlip(t *testing.T) {
	b := encode(t, smallNested(t))
	limits := Limits{Inline: 16}
	try := func(b []byte) {
		m, err := Parse(b, "", limits)
		if err != nil {
			var e *diagnostic.Error
			if !errors.As(err, &e) || e.Path != "model bytes" || strings.ContainsAny(err.Error(), "\n\x00") {
				t.Fatalf("not one clear error: %v", err)
			}
			return
		}
		exercise(m)
	}
	for n := range b {
		try(b[:n])
	}
	flipped := make([]byte, len(b))
	for i := range b {
		for bit := range 8 {
			copy(flipped, b)
			flipped[i] ^= 1 << bit
			try(flipped)
		}
	}
}

// exercise uses a model in every way; only panics matter.
func exercise(m *Model) {
	for _, x := range allTensors(m.Proto()) {
		_, _ = m.Data(x)
		_, _ = m.Int64s(x, 1<<16)
		_, _ = m.Float64s(x, 1<<16)
	}
	_, _ = m.Serialize(m.Proto(), SerializeOptions{})
	if s, err := m.Serialize(m.Proto(), SerializeOptions{Held: true}); err == nil {
		s.Release()
	}
	_ = m.Close()
}

func TestAFileThatShrinksIsAnError(t *testing.T) {
	_, w := floats(1, 4<<20)
	path := writeFile(t, filepath.Join(t.TempDir(), "m.onnx"),
		encode(t, modelOf(graphOf(rawTensor("w", onnx.Tensor_FLOAT, w, 4<<20)))))
	m := mustOpen(t, path)
	must.Succeed(t, os.Truncate(path, 100))
	err := m.Write(t.Context(), m.Proto(), filepath.Join(t.TempDir(), "out.onnx"), WriteOptions{})
	wantError(t, err, path+": the file changed while it was read, needed the same 16777255 bytes; open the model again")
}
