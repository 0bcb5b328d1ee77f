package patch_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/opgraft/graft/host/base/memory/shared"
	"github.com/opgraft/graft/host/onnx/graph"
	"github.com/opgraft/graft/host/onnx/model"
	"github.com/opgraft/graft/host/onnx/model/onnx"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/must"
)

// TestTablesInPlace: a table lies where sessions of a model have it if the program says what rows are taken. If
// constants and lengths do, ONNX Runtime may take them when the session is made, and would say as an error that the
// table is not there; as it does of a table of float16, which it may make one of float32 of.
func TestTablesInPlace(t *testing.T) {
	d := draw()
	ids := d.input(onnx.Tensor_INT64, "batch", 16)
	some := d.constant(graph.Int64Tensor("", []int64{8}, 0, 1, 2, 3, 4, 5, 6, 7))
	last := d.of("Gather", d.of("Shape", ids), d.constant(graph.Int64Tensor("", nil, 1)))
	takes := map[string]string{
		"the program": ids, "a sum with the program's": d.of("Add", ids, d.constant(graph.Int64Tensor("", nil, 1))),
		"a constant": some, "what is made from one": d.of("Neg", some), "a length": last,
	}
	tables := map[string]string{}
	for by, rows := range takes {
		table := d.table(4096, 64)
		tables[table] = by
		d.output(d.of("Gather", table, rows))
	}
	half := d.constant(&onnx.Tensor{DataType: proto.Int32(int32(onnx.Tensor_FLOAT16)), Dims: []int64{4096, 64},
		RawData: make([]byte, 2*4096*64)})
	tables[half] = "the program, of float16"
	d.output(d.of("Gather", half, ids))
	b := must.Value(proto.Marshal(d.model()))(t)
	m := must.Value(model.Parse(b, ""))(t)
	s := must.Value(patch.Serialize(m, m.Proto(), true, false, shared.Never))(t)
	for _, w := range s.Weights {
		defer w.Release()
		by := tables[w.Name]
		must.Equal(t, w.InPlace, by == "the program" || by == "a sum with the program's", by)
		delete(tables, w.Name)
	}
	if len(tables) > 0 {
		t.Errorf("no weights: %v", tables)
	}
}

// TestMatricesOfProducts: a matrix is packed where nothing but ONNX Runtime's matrix products reads it, as their second
// operand and in elements that they multiply as they are.
func TestMatricesOfProducts(t *testing.T) {
	d := draw()
	x := d.input(onnx.Tensor_FLOAT, "batch", 64)
	ids := d.input(onnx.Tensor_INT64, "batch")
	want := map[string]bool{}
	matrix := func(packed bool) string {
		name := d.table(64, 64)
		want[name] = packed
		return name
	}
	alone, of, twice, tied, first, other, table := matrix(true), matrix(true), matrix(true), matrix(false), matrix(false),
		matrix(false), matrix(false)
	d.output(d.of("MatMul", x, alone))
	d.output(d.of("Gemm", x, of))
	d.output(d.of("Add", d.of("MatMul", x, twice), d.of("MatMul", x, twice)))
	d.output(d.of("MatMul", d.of("Gather", tied, ids), tied))
	d.output(d.of("MatMul", first, d.of("Transpose", x)))
	d.output(d.of("Add", d.of("MatMul", x, other), other))
	d.output(d.of("MatMul", x, d.of("Transpose", table)))
	b := must.Value(proto.Marshal(d.model()))(t)
	m := must.Value(model.Parse(b, ""))(t)
	for _, cpu := range []bool{true, false} {
		s := must.Value(patch.Serialize(m, m.Proto(), cpu, false, shared.Never))(t)
		must.Equal(t, len(s.Weights), len(want))
		for _, w := range s.Weights {
			if packed := want[w.Name] && cpu; w.Packed != packed || packed && !w.InPlace {
				t.Errorf("%s is packed: %v, in place: %v, want %v", w.Name, w.Packed, w.InPlace, packed)
			}
			w.Release()
		}
	}
}
