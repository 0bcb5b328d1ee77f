package session_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/operator"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// listener is a kernel that notes what its node is.
type listener struct {
	says   string
	closed *int
}

func (k *listener) Close() { *k.closed++ }

// Run sums its inputs, those that are there, into each output that is.
func (k *listener) Run(c *operator.Call) error {
	sum := float32(0)
	for i := range c.Inputs {
		t, ok, err := c.Input(i)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		if t.Element != ort.Float32 || !slices.Equal(t.Shape, []int64{1}) || len(t.Data) != 4 {
			return fmt.Errorf("input %d is %+v", i, t)
		}
		sum += *(*float32)(cmem.Pointer(orttest.Address(t.Data)))
	}
	switch {
	case sum == 100:
		return &ort.Error{Code: ort.CodeEngineError, Message: "made to end"}
	case sum == 101:
		return errors.New("made to fail")
	case sum == 102:
		panic("made to panic")
	}
	for i := range c.Outputs {
		t, ok, err := c.Output(i, []int64{1})
		if err != nil {
			return err
		}
		if ok {
			*(*float32)(cmem.Pointer(orttest.Address(t.Data))) = sum
		}
	}
	return nil
}

// TestOperator: an operator whose kernels are Go sees its node's attributes, constants, inputs and outputs, and words
// its errors.
func TestOperator(t *testing.T) {
	var made listener
	closed := 0
	f32 := operator.Parameter{Element: ort.Float32}
	optional := operator.Parameter{Element: ort.Float32, Optional: true}
	op := must.Value(operator.New(library,
		operator.Operator{Name: "Listen", Since: 1, Inputs: []operator.Parameter{f32, optional, f32},
			Outputs: []operator.Parameter{optional, f32},
			Create: func(n *operator.Node) (operator.Kernel, error) {
				i, hasI := n.Int("i")
				f, hasF := n.Float("f")
				s, hasS := n.Text("s")
				is, hasIs := n.Ints("is")
				fs, hasFs := n.Floats("fs")
				_, none := n.Int("none")
				_, other := n.Int("s")
				var constants []int
				for i := range n.Inputs {
					c, ok, err := n.Constant(i)
					if err != nil {
						return nil, err
					}
					if ok && len(c.Data) == 4 {
						constants = append(constants, i)
					}
				}
				made = listener{fmt.Sprintln(i, hasI, f, hasF, s, hasS, is, hasIs, fs, hasFs, none, other, constants, n.Inputs,
					n.Outputs, n.Wants(0), n.Wants(1)), &closed}
				if i == 13 {
					return nil, errors.New("made to refuse")
				}
				return &made, nil
			}}))(t)
	domains := []operator.Domain{{Name: "test.listen", Operators: []uintptr{op}}}
	model := func(i int64) []byte {
		m := orttest.Unary("Listen")
		m.OpsetImport = append(m.OpsetImport, &onnx.OperatorSet{Domain: proto.String("test.listen"), Version: proto.Int64(1)})
		m.Graph.Initializer = []*onnx.Tensor{{Name: proto.String("c"), DataType: proto.Int32(int32(onnx.Tensor_FLOAT)),
			Dims: []int64{1}, FloatData: []float32{5}}}
		n := m.Graph.Node[0]
		n.Domain, n.Input, n.Output = proto.String("test.listen"), []string{"x", "", "c"}, []string{"", "y"}
		n.Attribute = []*onnx.Attribute{
			{Name: proto.String("i"), Type: onnx.Attribute_INT.Enum(), I: proto.Int64(i)},
			{Name: proto.String("f"), Type: onnx.Attribute_FLOAT.Enum(), F: proto.Float32(0.5)},
			{Name: proto.String("s"), Type: onnx.Attribute_STRING.Enum(), S: []byte("bhsd")},
			{Name: proto.String("is"), Type: onnx.Attribute_INTS.Enum(), Ints: []int64{1, 2}},
			{Name: proto.String("fs"), Type: onnx.Attribute_FLOATS.Enum(), Floats: []float32{3, 4}},
		}
		return orttest.Marshal(t, m)
	}
	s := orttest.Session(t, model(7), session.Options{Unpatched: true, Domains: domains})
	must.Equal(t, made.says, "7 true 0.5 true bhsd true [1 2] true [3 4] true false false [2] 3 2 false true\n")
	orttest.Expect(t, "a run", orttest.Run(t, s, 3), 8)
	for x, want := range map[float32]string{95: "made to end", 96: "made to fail", 97: "made to panic"} {
		in, err := ort.NewTensor(library, []int64{1}, []float32{x})
		must.Succeed(t, err)
		_, err = s.Run(context.Background(), map[string]*ort.Value{"x": in})
		in.Close()
		var e *ort.Error
		if !errors.As(err, &e) || !strings.Contains(e.Message, want) || (e.Code == ort.CodeEngineError) != (x == 95) {
			t.Errorf("of %v: %v", x, err)
		}
	}
	orttest.Expect(t, "a run after them", orttest.Run(t, s, 3), 8)
	s.Close()
	must.Equal(t, closed, 1)
	if _, err := session.FromBytes(library, model(13), session.Options{Unpatched: true, Domains: domains}); err == nil ||
		!strings.Contains(err.Error(), "made to refuse") {
		t.Errorf("a kernel that is refused: %v", err)
	}
}
