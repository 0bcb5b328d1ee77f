package ort

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/model/onnx"
)

// TestOwners: what a value's count says where its owners are known.
func TestOwners(t *testing.T) {
	if !library.tellsOwners() {
		t.Fatal("the layout of an OrtValue is not what it was: panels are not shared")
	}
	v, err := NewTensor(library, []int64{1}, []float32{0})
	if err != nil {
		t.Fatal(err)
	}
	defer v.Close()
	if !library.soleOwner(v.native) {
		t.Error("a new value has another owner")
	}
	_ = proto.Int32
	_ = onnx.Tensor_FLOAT
}
