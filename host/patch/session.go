package patch

import (
	"runtime"

	"github.com/opgraft/graft/host/model"
	"github.com/opgraft/graft/host/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// Session is what a session of ONNX Runtime is made from.
type Session struct {
	Model   []byte
	Folder  string       // of files that Model refers to, for ort.ConfigExternalFolder; "" for none
	Weights []ort.Weight // which the session takes over, or which are to be released
}

// Serialize makes one of a graph whose weights lie with a model. The session holds its weights, and no
// change of a file reaches it; with mapped it maps the files instead, which must not change. cpu says that
// it computes there.
func Serialize(m *model.Model, p *onnx.Model, cpu, mapped bool) (*Session, error) {
	o := model.SerializeOptions{Held: !mapped}
	if cpu && runtime.GOOS == "linux" { // where there is a file that can be named without being read
		constant := map[string]bool{}
		for _, t := range p.GetGraph().GetInitializer() {
			constant[t.GetName()] = true
		}
		o.InPlace = func(n *onnx.Node, input int) bool { return inPlace(n, input, constant) }
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
		s.Weights = append(s.Weights, ort.Weight{Name: w.Name, Element: ort.ElementType(w.DataType), Shape: w.Dims, Data: w.Data, InPlace: w.InPlace, Release: w.Release})
	}
	return s, nil
}

// inPlace says of a node's input that ONNX Runtime only hands it on, and lays nothing out anew: an operator of ours, or
// a table of which rows are taken.
func inPlace(n *onnx.Node, input int, constant map[string]bool) bool {
	switch n.GetDomain() {
	case manifest.Domain:
		return true
	case "", "ai.onnx":
		return n.GetOpType() == "Gather" && input == 0 && len(n.GetInput()) == 2 && !constant[n.GetInput()[1]]
	}
	return false
}
