package plan

import "fmt"

// Fusion is what ONNX Runtime makes of nodes of the unpatched model, by the names of the model's values: a layer
// normalisation with the sum that it normalises (Scale) or apart from it (Apart), a GELU by the error function
// (Gelu), or attention (Attention). One node rounds otherwise than those that it stands for, and last bits differ.
type Fusion struct {
	Sum     [2]string // what is added up and normalised
	Scale   string
	Bias    string // "" for none
	Epsilon float32
	Apart   bool // the sum is a node of its own

	Gelu string // what it is taken of

	Attention *FusedAttention

	Output string
}

// FusedAttention is softmax(Scale q k + mask) v, in nodes of which the first may multiply by the scale.
type FusedAttention struct {
	Query, Key, Value string // [B, H, S, D], [B, H, D, T], [B, H, T, V]
	Mask              string // "" for none
	Scale             float32
}

// askFusions notes what ONNX Runtime fuses, for the operators whose results have the bits of an unpatched session;
// without an answer they are left.
func (p *Plan) askFusions(o Options) {
	if o.Fusions == nil {
		return
	}
	asked := false
	var err error
	for i := range p.Choices {
		c := &p.Choices[i]
		if c.Operator == nil || !c.Operator.SameBits || o.QuantizationNoise {
			continue
		}
		if !asked {
			asked = true
			p.Fusions, err = o.Fusions()
		}
		if err != nil {
			c.Leave(fmt.Sprintf("it is not known what ONNX Runtime fuses around it: %v", err))
		}
	}
}
