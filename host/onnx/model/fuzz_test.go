package model

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"google.golang.org/protobuf/proto"
)

// fuzzLimits make a single input cheap and small payloads interesting.
var fuzzLimits = Limits{Inline: 8, Nodes: 1000, Tensors: 1000, Depth: 8, Memory: 1 << 22}

// FuzzParse: any bytes give a model or one *diagnostic.Error, and a model that could be
// read can be read, serialised and read again.
func FuzzParse(f *testing.F) {
	f.Add(encode(f, modelOf(graphOf(rawTensor("w", onnx.Tensor_FLOAT, make([]byte, 40), 2, 5)))))
	f.Add(encode(f, &onnx.Model{IrVersion: proto.Int64(8)}))
	f.Add(encode(f, smallNested(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		must.CostLittle(t, len(b), func() { parseAndUse(t, b) })
		if !bytes.Equal(b, before) {
			t.Error("the caller's bytes were written to")
		}
	})
}

// parseAndUse reads a model, and does what readers do with it.
func parseAndUse(t *testing.T, b []byte) {
	m, err := Parse(b, "", fuzzLimits)
	if err != nil {
		var e *diagnostic.Error
		if !errors.As(err, &e) || e.Path == "" || e.Found == "" || strings.ContainsAny(err.Error(), "\n\x00") {
			t.Fatalf("not one clear error: %v", err)
		}
		return
	}
	readable := true
	eachTensor(m.Proto().ProtoReflect(), func(x *onnx.Tensor) {
		if refers(m, x) {
			_, err := m.Data(x)
			readable = readable && err == nil
		}
	})
	for _, o := range []SerializeOptions{{}, {Held: true}} {
		s := must.Value(m.Serialize(m.Proto(), o))(t, "what was read cannot be serialised")
		if s.Release(); o.Held || !readable {
			continue
		}
		again := must.Value(Parse(s.Bytes, ""))(t, "what was serialised cannot be read")
		must.Equal(t, len(again.Proto().GetGraph().GetOutput()), len(m.Proto().GetGraph().GetOutput()))
	}
	exercise(m)
}

// eachTensor calls f for every tensor anywhere in a message: names need not tell them apart.
func eachTensor(p protoreflect.Message, f func(*onnx.Tensor)) {
	if t, ok := p.Interface().(*onnx.Tensor); ok {
		f(t)
	}
	p.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.Message() == nil:
		case d.IsList():
			for i := range v.List().Len() {
				eachTensor(v.List().Get(i).Message(), f)
			}
		default:
			eachTensor(v.Message(), f)
		}
		return true
	})
}

// FuzzOpen: the same through a file, where the bytes are mapped for a while, with
// a file beside it that external data may name.
func FuzzOpen(f *testing.F) {
	f.Add(encode(f, modelOf(graphOf(externalTensor("w", "w.bin", 3, 8, 2)))))
	f.Add(encode(f, modelOf(graphOf(rawTensor("w", onnx.Tensor_FLOAT, make([]byte, 40), 2, 5)))))
	dir := f.TempDir()
	writeFile(f, filepath.Join(dir, "w.bin"), noise(1, 4096))
	f.Fuzz(func(t *testing.T, b []byte) {
		path := filepath.Join(dir, "m.onnx")
		must.Succeed(t, os.WriteFile(path, b, 0o644))
		must.CostLittle(t, len(b), func() {
			m, err := Open(path, fuzzLimits)
			if err != nil {
				var e *diagnostic.Error
				if !errors.As(err, &e) || e.Found == "" {
					t.Fatalf("not one clear error: %v", err)
				}
				return
			}
			exercise(m)
		})
	})
}

// FuzzExternalData: whatever a location, an offset and a length say, only bytes
// of files in the model's folder come out.
func FuzzExternalData(f *testing.F) {
	for _, location := range []string{"w.bin", "sub/w.bin", "link", "out", "folder link/secret", "../secret",
		"/etc/passwd", "sub/../../secret", "*/_ORT_MEM_ADDR_/*", `..\secret`} {
		f.Add(location, "0", "8", int64(2))
	}
	f.Add("w.bin", "-1", "99999999999999999999", int64(-1))
	top := must.Value(filepath.EvalSymlinks(f.TempDir()))(f)
	secret := bytes.Repeat([]byte("secret! "), 16)
	writeFile(f, filepath.Join(top, "outside", "secret"), secret)
	dir := filepath.Join(top, "model")
	inside := noise(1, 100)
	writeFile(f, filepath.Join(dir, "w.bin"), inside)
	writeFile(f, filepath.Join(dir, "sub", "w.bin"), inside)
	link(f, "w.bin", filepath.Join(dir, "link"))
	link(f, "../outside/secret", filepath.Join(dir, "out"))
	link(f, "../outside", filepath.Join(dir, "folder link"))
	f.Fuzz(func(t *testing.T, location, offset, length string, dim int64) {
		x := &onnx.Tensor{Name: proto.String("w"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)), Dims: []int64{dim},
			DataLocation: onnx.Tensor_EXTERNAL.Enum(),
			ExternalData: []*onnx.Entry{entryOf("location", location), entryOf("offset", offset), entryOf("length", length)}}
		b := encode(t, modelOf(graphOf(x)))
		var m *Model
		var err error
		must.CostLittle(t, len(b), func() { m, err = Parse(b, dir) })
		if err != nil {
			var e *diagnostic.Error
			if !errors.As(err, &e) || e.Path == "" || e.Found == "" {
				t.Fatalf("not one clear error: %v", err)
			}
			return
		}
		defer m.Close()
		got := must.Value(m.Data(m.Proto().GetGraph().Initializer[0]))(t)
		if int64(len(got)) != 4*dim || !bytes.Contains(inside, got) {
			t.Errorf("%d bytes from %q that are not of a file inside", len(got), location)
		}
		for _, file := range paths(m) {
			if !strings.HasPrefix(file, dir+string(filepath.Separator)) {
				t.Errorf("%q led to %s", location, file)
			}
		}
	})
}
