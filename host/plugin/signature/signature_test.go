package signature

import (
	"math"
	"testing"

	"github.com/opgraft/graft/host/plugin/tensor"
)

func TestSame(t *testing.T) {
	with := func(change func(*Operator)) *Operator {
		op := &Operator{Name: "A",
			Inputs: []Parameter{{Name: "x", Types: []tensor.DType{tensor.Float32}},
				{Name: "b", Types: []tensor.DType{tensor.Int64}, Optional: true}},
			Outputs: []Parameter{{Name: "y", Types: []tensor.DType{tensor.Float32}}},
			Attributes: []Attribute{{Name: "by", Kind: "ints", Default: []int64{1, 2}},
				{Name: "to", Kind: "int", Default: int64(1)},
				{Name: "fill", Kind: "float", Default: math.NaN()}}}
		if change != nil {
			change(op)
		}
		return op
	}
	for _, test := range []struct {
		want   string
		change func(*Operator)
	}{
		{"", nil},
		{"", func(op *Operator) { op.Inputs[0].Types = []tensor.DType{tensor.BFloat16, tensor.Float16} }},
		{"", func(op *Operator) { op.Inputs[1].HostMemory = true }},
		{"", func(op *Operator) { op.Attributes[0], op.Attributes[1] = op.Attributes[1], op.Attributes[0] }},
		{"2 inputs in one, 1 in the other", func(op *Operator) { op.Inputs = op.Inputs[:1] }},
		{"input 1, b, differs", func(op *Operator) { op.Inputs[1].Optional = false }},
		{"output 0, y, differs", func(op *Operator) { op.Outputs[0].Name = "z" }},
		{"attribute to differs", func(op *Operator) { op.Attributes = append(op.Attributes[:1], op.Attributes[2]) }},
		{"attribute more differs", func(op *Operator) { op.Attributes = append(op.Attributes, Attribute{Name: "more"}) }},
		{"attribute by differs", func(op *Operator) { op.Attributes[0].Default = []int64{1, 3} }},
	} {
		err := Same(with(nil), with(test.change))
		if (err == nil) != (test.want == "") || err != nil && err.Error() != test.want {
			t.Errorf("got %v, want %q", err, test.want)
		}
	}
}
