package model

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/internal/must"
	"google.golang.org/protobuf/proto"
)

// externals lists the external data of an encoded model by tensor name.
func externals(t testing.TB, b []byte) map[string]map[string]string {
	t.Helper()
	p := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(b, p))
	found := map[string]map[string]string{}
	for name, x := range allTensors(p) {
		if x.GetDataLocation() == onnx.Tensor_EXTERNAL {
			e := map[string]string{}
			for _, entry := range x.ExternalData {
				e[entry.GetKey()] = entry.GetValue()
			}
			found[name] = e
		}
	}
	return found
}

func TestSerializeRefersToTheOriginalFile(t *testing.T) {
	dir, _ := filepath.EvalSymlinks(t.TempDir())
	b := encode(t, nested(t))
	m := mustOpen(t, writeFile(t, filepath.Join(dir, "m.onnx"), b))
	before := proto.Clone(m.Proto())
	s := must.Value(m.Serialize(m.Proto(), SerializeOptions{}))(t)
	if !proto.Equal(before, m.Proto()) {
		t.Error("the proto was changed")
	}
	if s.Folder != dir || len(s.Weights) != 0 {
		t.Errorf("folder %q, weights %v", s.Folder, s.Weights)
	}
	ext := externals(t, s.Bytes)
	// Sparse tensors and function bodies cannot refer to files; integers up to
	// 64 KiB stay inline for shape arithmetic.
	var names []string
	for name := range ext {
		names = append(names, name)
	}
	must.Equal(t, len(ext), 5, names)
	for _, name := range []string{"weight", "branch weight", "inner weight", "constant"} {
		e := ext[name]
		if e == nil {
			t.Errorf("%q is not external", name)
			continue
		}
		at, _ := strconv.Atoi(e["offset"])
		want := mustData(t, m, allTensors(m.Proto())[name])
		if e["location"] != "m.onnx" || e["length"] != "6000" || !bytes.Equal(b[at:at+6000], want) {
			t.Errorf("%q is at %v", name, e)
		}
	}
	must.Equal(t, s.Referred, 5*6000)
	// What stands where a constant stood that is an output of its graph.
	p := &onnx.Model{}
	must.Succeed(t, proto.Unmarshal(s.Bytes, p))
	branch := p.Graph.Node[0].Attribute[0].G
	if n := branch.Node[0]; n.GetOpType() != "Identity" || n.Output[0] != "branch constant" ||
		n.Input[0] != branch.Initializer[1].GetName() {
		t.Errorf("the constant became %v", n)
	}
	must.Equal(t, len(p.Graph.Node), 1)
}

func TestSerializeHoldsWeights(t *testing.T) {
	dir := t.TempDir()
	_, w := floats(20, 1500)
	writeFile(t, filepath.Join(dir, "w.bin"), append([]byte("12345"), w...))
	p := nested(t)
	p.Graph.Initializer = append(p.Graph.Initializer, externalTensor("external", "w.bin", 5, 6000, 1500))
	p.Graph.Node = append(p.Graph.Node,
		&onnx.Node{OpType: proto.String("Taker"), Input: []string{"external", "weight"}, Output: []string{"a"}},
		&onnx.Node{OpType: proto.String("Taker"), Input: []string{"external"}, Output: []string{"b"}},
		&onnx.Node{OpType: proto.String("Other"), Input: []string{"weight"}, Output: []string{"d"}})
	path := writeFile(t, filepath.Join(dir, "m.onnx"), encode(t, p))
	for name, m := range map[string]*Model{"file": mustOpen(t, path), "bytes": mustParse(t, encode(t, p), dir)} {
		s := must.Value(m.Serialize(m.Proto(),
			SerializeOptions{Held: true, InPlace: func(n *onnx.Node, _ int) bool { return n.GetOpType() == "Taker" }}))(t)
		want := map[string][]byte{}
		for _, w := range []string{"weight", "constant", "external"} {
			want[w] = mustData(t, m, allTensors(m.Proto())[w])
		}
		must.Succeed(t, m.Close())
		ext := externals(t, s.Bytes)
		if s.Folder != "" || len(ext) != 3 || len(s.Weights) != 3 || s.Referred != 3*6000 {
			t.Errorf("%s: folder %q, %d tensors are external, %d weights of %d bytes", name, s.Folder, len(ext), len(s.Weights),
				s.Referred)
		}
		for _, w := range s.Weights {
			if e := ext[w.Name]; e["location"] != Nowhere || !bytes.Equal(w.Data, want[w.Name]) ||
				w.DataType != onnx.Tensor_FLOAT {
				t.Errorf("%s: %q is at %v, %d bytes", name, w.Name, e, len(w.Data))
			}
			must.Equal(t, w.InPlace, w.Name == "external", name)
		}
		s.Release()
	}
	if len(holding.files) != 0 {
		t.Errorf("%d files are still held", len(holding.files))
	}
}

func TestSerializeCopiesWhatHasNoFile(t *testing.T) {
	m := mustParse(t, encode(t, nested(t)), "")
	s := must.Value(m.Serialize(m.Proto(), SerializeOptions{}))(t)
	if s.Folder != "" || s.Referred != 0 || len(externals(t, s.Bytes)) != 0 {
		t.Errorf("refers to files in %q", s.Folder)
	}
	back := mustParse(t, s.Bytes, "")
	for name, x := range allTensors(m.Proto()) {
		switch name {
		case "words", "constant", "branch constant": // strings; lifted
		default:
			if !bytes.Equal(mustData(t, m, x), mustData(t, back, allTensors(back.Proto())[name])) {
				t.Errorf("bytes of %q changed", name)
			}
		}
	}
}

func TestSerializeMovedRenamedAndReshapedTensors(t *testing.T) {
	_, w := floats(1, 2000)
	m := mustOpen(t, writeFile(t, filepath.Join(t.TempDir(), "m.onnx"),
		encode(t, modelOf(graphOf(rawTensor("w", onnx.Tensor_FLOAT, w, 2000))))))
	x := proto.Clone(m.Proto().GetGraph().Initializer[0]).(*onnx.Tensor)
	x.Name, x.Dims = proto.String("v"), []int64{20, 100}
	s, err := m.Serialize(modelOf(graphOf(x)), SerializeOptions{})
	must.Succeed(t, err)
	back := mustParse(t, s.Bytes, s.Folder)
	if got := back.Proto().GetGraph().Initializer[0]; got.GetName() != "v" || len(got.Dims) != 2 ||
		!bytes.Equal(mustData(t, back, got), w) {
		t.Errorf("became %v", got)
	}
	x.Dims = []int64{21, 100}
	_, err = m.Serialize(modelOf(graphOf(x)), SerializeOptions{})
	wantError(t, err,
		m.Path()+`: tensor "v" does not hold what its shape says: found 8000 bytes, needed 8400 for float32 [21 100]; keep the number of elements when a tensor is reshaped`)
}

func TestSerializeRefusesStrangers(t *testing.T) {
	_, w := floats(1, 2000)
	b := encode(t, modelOf(graphOf(rawTensor("w", onnx.Tensor_FLOAT, w, 2000),
		rawTensor("v", onnx.Tensor_FLOAT, w, 2000))))
	m := mustParse(t, b, "")
	_, err := m.Serialize(modelOf(graphOf(externalTensor("x", "/etc/passwd", 0, 8, 2))), SerializeOptions{})
	wantError(t, err, `model bytes: tensor "x" refers to a file by itself, needed data of its own or of an opened model`)
	one := mustParse(t, encode(t, modelOf(graphOf(rawTensor("w", onnx.Tensor_FLOAT, w, 2000)))), "")
	_, err = one.Serialize(m.Proto(), SerializeOptions{})
	wantError(t, err,
		`model bytes: a tensor refers to another model: found reference "1", needed one below 1; take tensors from one model only`)
	must.Succeed(t, m.Close())
	_, err = m.Data(m.Proto().GetGraph().Initializer[0])
	wantError(t, err, "model bytes: the model is closed; read its tensors before Close")
}

func TestLiftConstantsMakesNamesThatDiffer(t *testing.T) {
	_, w := floats(1, 2000)
	g := graphOf(rawTensor("c_constant_0", onnx.Tensor_FLOAT, w[:4], 1))
	g.Node = []*onnx.Node{constantNode("c", rawTensor("", onnx.Tensor_FLOAT, w, 2000)),
		constantNode("small", rawTensor("", onnx.Tensor_FLOAT, w[:4], 1))}
	g.Output = []*onnx.ValueInfo{{Name: proto.String("c")}}
	m := mustParse(t, encode(t, modelOf(g)), "")
	old := proto.Clone(m.Proto()).(*onnx.Model)
	old.IrVersion = proto.Int64(3)
	if n := m.LiftConstants(old); n != 0 || len(old.Graph.Node) != 2 {
		t.Errorf("%d lifted in IR version 3", n)
	}
	must.Equal(t, m.LiftConstants(m.Proto()), 1)
	got := m.Proto().GetGraph()
	if got.Initializer[1].GetName() != "c_constant_1" || got.Node[0].GetInput()[0] != "c_constant_1" ||
		got.Node[1].GetOpType() != "Constant" {
		t.Errorf("became %v", got)
	}
}

func TestModelsTooLargeForOneMessageSaySo(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "w.bin")
	writeFile(t, path, nil)
	must.Succeed(t, os.Truncate(path, 3<<30))
	// In an attribute nothing can refer to a file.
	g := graphOf()
	g.Node = []*onnx.Node{constantNode("c", externalTensor("", "w.bin", 0, 3<<30, 3<<28))}
	g.Node[0].OpType = proto.String("Other")
	m := mustParse(t, encode(t, modelOf(g)), dir)
	_, err := m.Serialize(m.Proto(), SerializeOptions{})
	must.Fail(t, err, "model bytes: is too large for one message apart from what it can refer to: found 32212255")
}

// Readers share a model; Serialize may run beside them.
func TestUseFromSeveralGoroutines(t *testing.T) {
	m, _ := spread(t)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for _, x := range allTensors(m.Proto()) {
				if _, err := m.Data(x); err != nil && x.GetDataType() != int32(onnx.Tensor_STRING) {
					t.Error(err)
				}
			}
			s, err := m.Serialize(m.Proto(), SerializeOptions{Held: i%2 == 0})
			if err != nil {
				t.Error(err)
				return
			}
			s.Release()
		})
	}
	group.Wait()
}
