package session_test

import (
	"context"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// sequence is the model y = [x, x].
func sequence() *onnx.Model {
	m := orttest.Identity(ort.Float32, "n")
	m.Graph.Node = []*onnx.Node{orttest.Node("SequenceConstruct", []string{"x", "x"}, []string{"y"})}
	m.Graph.Output = []*onnx.ValueInfo{orttest.Value("y",
		&onnx.Type{Value: &onnx.Type_SequenceType{SequenceType: &onnx.Type_Sequence{

			ElemType: orttest.TensorType(ort.Float32, "n")}}})}
	return m
}

func TestSequenceOutput(t *testing.T) {
	s := orttest.Session(t, orttest.Marshal(t, sequence()), session.Options{})
	x := must.Value(ort.NewTensor(library, []int64{2}, []float32{3, 4}))(t)
	out := must.Value(s.Run(context.Background(), map[string]*ort.Value{"x": x}))(t)
	defer ort.CloseAll(out)
	must.Fail(t, must.Error(out[0].Bytes()), "the value is a sequence, needed a tensor")
	items, err := out[0].Items()
	if err != nil || len(items) != 2 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	defer ort.CloseAll(items)
	y, _ := ort.Data[float32](items[1])
	orttest.Expect(t, "second item", y, 3, 4)
}

// TestEmptyOptional takes an optional without content from one model to another, where it would
// end the process.
func TestEmptyOptional(t *testing.T) {
	kind := &onnx.Type{Value: &onnx.Type_OptionalType{OptionalType: &onnx.Type_Optional{
		ElemType: orttest.TensorType(ort.Float32,
			"n")}}}
	m := orttest.Identity(ort.Float32, "n")
	m.Graph.Input = nil
	none := orttest.Node("Optional", nil, []string{"y"})
	none.Attribute = []*onnx.Attribute{{Name: proto.String("type"), Type: onnx.Attribute_TYPE_PROTO.Enum(),
		Tp: orttest.TensorType(ort.Float32, "n")}}
	m.Graph.Node = []*onnx.Node{none}
	m.Graph.Output = []*onnx.ValueInfo{orttest.Value("y", kind)}
	out, err := orttest.Session(t, orttest.Marshal(t, m), session.Options{}).Run(context.Background(), nil)
	must.Succeed(t, err)
	defer ort.CloseAll(out)
	must.Equal(t, out[0].Kind(), ort.KindOptional)
	must.Fail(t, must.Error(out[0].Bytes()), "the value is a optional, needed a tensor")

	m = orttest.Identity(ort.Bool)
	m.Graph.Input = []*onnx.ValueInfo{orttest.Value("x", kind)}
	m.Graph.Node = []*onnx.Node{orttest.Node("OptionalHasElement", []string{"x"}, []string{"y"})}
	s := orttest.Session(t, orttest.Marshal(t, m), session.Options{})
	_, err = s.Run(context.Background(), map[string]*ort.Value{"x": out[0]})
	must.Fail(t, err, `input "x": an optional without content cannot be fed`)
}

func TestNewSequence(t *testing.T) {
	m := orttest.Identity(ort.Float32, "n")
	kind := &onnx.Type{Value: &onnx.Type_SequenceType{SequenceType: &onnx.Type_Sequence{
		ElemType: orttest.TensorType(ort.Float32,
			"n")}}}
	m.Graph.Input = []*onnx.ValueInfo{orttest.Value("x", kind)}
	m.Graph.Output = []*onnx.ValueInfo{orttest.Value("y", kind)}
	m.Graph.Node = []*onnx.Node{orttest.Node("Identity", []string{"x"}, []string{"y"})}
	s := orttest.Session(t, orttest.Marshal(t, m), session.Options{})
	data := []float32{3, 4}
	item := must.Value(ort.NewTensor(library, []int64{2}, data))(t)
	x := must.Value(library.NewSequence([]*ort.Value{item, item}))(t)
	item.Close()
	data[0] = 5 // the sequence has copies
	out, err := s.Run(context.Background(), map[string]*ort.Value{"x": x})
	x.Close()
	must.Succeed(t, err)
	defer ort.CloseAll(out)
	items, err := out[0].Items()
	if err != nil || len(items) != 2 {
		t.Fatalf("%d items, %v", len(items), err)
	}
	defer ort.CloseAll(items)
	y, _ := ort.Data[float32](items[1])
	orttest.Expect(t, "second item", y, 3, 4)

	words := must.Value(library.NewStrings([]int64{1}, []string{"word"}))(t)
	text := must.Value(library.NewSequence([]*ort.Value{words}))(t)
	defer text.Close()
	if items, err := text.Items(); err != nil || len(items) != 1 {
		t.Errorf("a sequence of strings has %d items, %v", len(items), err)
	} else if list, err := items[0].Strings(); err != nil || list[0] != "word" {
		t.Errorf("a sequence of strings holds %q, %v", list, err)
	}

	must.Fail(t, must.Error(library.NewSequence(nil)), "a sequence of no tensor, needed at least one")
	must.Fail(t, must.Error(library.NewSequence([]*ort.Value{item})), ort.ErrClosed)
	if _, err := library.NewSequence([]*ort.Value{words, items[0]}); err == nil {
		t.Error("a sequence of two element types was made")
	}
}
