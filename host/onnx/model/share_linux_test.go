package model

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
)

// takers is a model of a table, which is read where it lies, and two matrices, which are read in panels. change has
// the table or the matrices differ in a byte that no sample sees.
func takers(t *testing.T, change string) *onnx.Model {
	var tensors []*onnx.Tensor
	for i, name := range []string{"table", "one", "two"} {
		_, raw := floats(uint64(i+1), 1024*1040)
		if name == change {
			raw[len(raw)/3]++
		}
		tensors = append(tensors, rawTensor(name, onnx.Tensor_FLOAT, raw, 1024, 1040))
	}
	return modelOf(graphOf(tensors...))
}

// TestShare: weights that are read where they lie are in memory once, of whatever file or bytes they are; others are
// their own file's. All have the bytes that they have without sharing.
func TestShare(t *testing.T) {
	folder := t.TempDir()
	path := func(name string, b []byte) string { return writeFile(t, filepath.Join(folder, name), b) }
	b := encode(t, takers(t, ""))
	first := serializeTakers(t, mustOpen(t, path("m.onnx", b)), shared.Always)
	for i, c := range []struct {
		name          string
		model         *Model
		wish          shared.Wish
		table, panels bool // are those of the first
	}{
		{"the same file", mustOpen(t, filepath.Join(folder, "m.onnx")), shared.Always, true, true},
		{"a copy", mustOpen(t, path("copy.onnx", b)), shared.Always, true, true},
		{"its bytes", mustParse(t, b, ""), shared.Always, true, true},
		{"another table", mustOpen(t, path("table.onnx", encode(t, takers(t, "table")))), shared.Always, false, true},
		{"another matrix", mustOpen(t, path("two.onnx", encode(t, takers(t, "two")))), shared.Always, true, false},
		{"weights of its own", mustParse(t, b, ""), shared.Never, false, false},
	} {
		s := serializeTakers(t, c.model, c.wish)
		own := serializeTakers(t, c.model, shared.Never)
		for k, w := range s.Weights {
			want := map[string]bool{"table": c.table, "laid": c.panels}[w.Name]
			if file := memoryFile(t, w); (file == memoryFile(t, first.Weights[k])) != want ||
				(file == "") != (c.wish == shared.Never) {
				t.Errorf("%d, %s: %s lies in %q, that of the first in %q", i, c.name, w.Name, file, memoryFile(t, first.Weights[k]))
			}
			if c.wish != shared.Never || !want {
				compareWeights(t, c.name, w, own.Weights[k], c.model)
			}
		}
		own.Release()
		s.Release()
	}
	first.Release()
	if maps, err := os.ReadFile("/proc/self/maps"); err != nil || bytes.Contains(maps, []byte("/memfd:graft-weights-")) {
		t.Errorf("memory is left of what was released, %v", err)
	}
	if len(holding.files) != 0 {
		t.Errorf("%d files are still held", len(holding.files))
	}
}

// compareWeights compares with what a model's own tensors say: two sessions of a file that is old have one copy.
func compareWeights(t *testing.T, name string, w, own Weight, m *Model) {
	t.Helper()
	if !bytes.Equal(w.Data, own.Data) {
		t.Errorf("%s: other bytes than without sharing", name)
	}
	if w.Name == "table" && !bytes.Equal(w.Data, mustData(t, m, allTensors(m.Proto())["table"])) {
		t.Errorf("%s: other bytes than the tensor's", name)
	}
}

// serializeTakers has the table and panels of both matrices taken where they lie.
func serializeTakers(t *testing.T, m *Model, wish shared.Wish) *Serialized {
	t.Helper()
	p := proto.Clone(m.Proto()).(*onnx.Model)
	all := allTensors(p)
	laid := must.Value(m.Panels("laid", Matrix{Tensor: all["one"]}, Matrix{Tensor: all["two"]}))(t)
	p.Graph.Initializer = []*onnx.Tensor{all["table"], laid}
	p.Graph.Node = []*onnx.Node{{OpType: proto.String("Taker"), Input: []string{"table", "laid"}, Output: []string{"y"}}}
	s := must.Value(m.Serialize(p, SerializeOptions{Held: true, Share: wish,
		InPlace: func(*onnx.Node, int) bool { return true }}))(t)
	if len(s.Weights) != 2 {
		t.Fatalf("%d weights", len(s.Weights))
	}
	return s
}

// memoryFile is the inode of the memory file that a weight lies in; "" for none.
func memoryFile(t *testing.T, w Weight) string {
	t.Helper()
	maps := must.Value(os.ReadFile("/proc/self/maps"))(t)
	at := uintptr(unsafe.Pointer(&w.Data[0]))
	for line := range strings.Lines(string(maps)) {
		var from, to uintptr
		if n, _ := fmt.Sscanf(line, "%x-%x", &from, &to); n == 2 && from <= at && at < to &&
			strings.Contains(line, "/memfd:graft-weights-") {
			return strings.Fields(line)[4]
		}
	}
	return ""
}

// TestShareWhatStays: weights that a session copies or lays out anew, and small ones, are not worth it.
func TestShareWhatStays(t *testing.T) {
	large := encode(t, takers(t, ""))
	small := encode(t, modelOf(graphOf(rawTensor("table", onnx.Tensor_FLOAT, make([]byte, 1<<20), 1024, 256))))
	yes := func(*onnx.Node, int) bool { return true }
	for _, c := range []struct {
		name  string
		model []byte
		o     SerializeOptions
		want  bool
	}{
		{"in place", large, SerializeOptions{InPlace: yes}, true},
		{"copied", large, SerializeOptions{}, false},
		{"laid out anew", large, SerializeOptions{InPlace: yes, Packed: yes}, false},
		{"small", small, SerializeOptions{InPlace: yes}, false},
	} {
		m := mustParse(t, c.model, "")
		p := m.Proto()
		p.Graph.Node = []*onnx.Node{{OpType: proto.String("Taker"), Input: []string{"table"}, Output: []string{"y"}}}
		c.o.Held, c.o.Share = true, shared.Always
		s := must.Value(m.Serialize(p, c.o))(t)
		for _, w := range s.Weights {
			if w.Name == "table" && (memoryFile(t, w) != "") != c.want {
				t.Errorf("%s: lies in %q", c.name, memoryFile(t, w))
			}
		}
		s.Release()
	}
}
