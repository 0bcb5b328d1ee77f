package patch

import (
	"runtime"
	"slices"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Session is what a session of ONNX Runtime is made from.
type Session struct {
	Model   []byte
	Folder  string           // of files that Model refers to, for session.ConfigExternalFolder; "" for none
	Weights []session.Weight // which the session takes over, or which are to be released
}

// Serialize makes one of a graph whose weights lie with a model. The session holds its weights, and no
// change of a file reaches it, and shares them with other processes as is wished; with mapped it maps the files
// instead, which must not change. cpu says that it computes there.
func Serialize(m *model.Model, p *onnx.Model, cpu, mapped bool, share shared.Wish) (*Session, error) {
	o := model.SerializeOptions{Held: !mapped, Share: share}
	if cpu && runtime.GOOS == "linux" { // where there is a file that can be named without being read
		given, types := given(p.GetGraph()), elementTypes(p.GetGraph())
		o.InPlace = func(n *onnx.Node, input int) bool { return inPlace(n, input, given, types) }
		o.Packed = func(n *onnx.Node, input int) bool { return packed(n, input, types) }
	}
	out, err := m.Serialize(p, o)
	if err != nil {
		return nil, err
	}
	s := &Session{Model: out.Bytes, Folder: out.Folder}
	for _, w := range out.Weights {
		if w.InPlace {
			s.Folder = model.NowhereFolder
		}
		s.Weights = append(s.Weights,
			session.Weight{Name: w.Name, Element: ort.ElementType(w.DataType), Shape: w.Dims, Data: w.Data, InPlace: w.InPlace,
				Packed: w.Packed, Release: w.Release})
	}
	return s, nil
}

// inPlace says of a node's input that ONNX Runtime only hands it on, and lays nothing out anew: an operator of ours, or
// a table of which the program says what rows are taken. Of a table of float16 ONNX Runtime makes one of float32 where
// the CPU has no operator for what is computed of it.
func inPlace(n *onnx.Node, input int, given map[string]bool, types map[string]onnx.Tensor_DataType) bool {
	switch n.GetDomain() {
	case manifest.Domain:
		return true
	case "", "ai.onnx":
		return n.GetOpType() == "Gather" && input == 0 && len(n.GetInput()) == 2 && given[n.GetInput()[1]] &&
			types[n.GetInput()[0]] != onnx.Tensor_FLOAT16
	}
	return false
}

// packed says of a node's input that it is a matrix which one of ONNX Runtime's matrix products lays out anew when a
// session is made, of elements that it multiplies as they are.
func packed(n *onnx.Node, input int, types map[string]onnx.Tensor_DataType) bool {
	if d := n.GetDomain(); d != "" && d != "ai.onnx" || input != 1 {
		return false
	}
	switch element := types[n.GetInput()[input]]; n.GetOpType() {
	case "MatMul", "Gemm":
		return element == onnx.Tensor_FLOAT
	case "MatMulInteger":
		return element == onnx.Tensor_INT8 || element == onnx.Tensor_UINT8
	}
	return false
}

// elementTypes are those of a graph's matrices.
func elementTypes(g *onnx.Graph) map[string]onnx.Tensor_DataType {
	types := map[string]onnx.Tensor_DataType{}
	for _, t := range g.GetInitializer() {
		if len(t.GetDims()) == 2 {
			types[t.GetName()] = onnx.Tensor_DataType(t.GetDataType())
		}
	}
	return types
}

// given are the values of a graph that are made from elements of its inputs. ONNX Runtime may compute all others when a
// session is made, from constants and known lengths.
func given(g *onnx.Graph) map[string]bool {
	given := map[string]bool{}
	for _, in := range g.GetInput() {
		given[in.GetName()] = true
	}
	for _, n := range g.GetNode() {
		if n.GetOpType() == "Shape" || n.GetOpType() == "Size" ||
			!slices.ContainsFunc(n.GetInput(), func(name string) bool { return given[name] }) {
			continue
		}
		for _, out := range n.GetOutput() {
			given[out] = true
		}
	}
	return given
}
