package plan

import "fmt"

// Fusion is a layer normalisation that ONNX Runtime makes one node of with the sum that it normalises, of the unpatched model.
// Names are those of the model's values. Where it is one node and where it is two, last bits differ.
type Fusion struct {
	Sum     [2]string // what is added up
	Scale   string
	Bias    string // "" for none
	Output  string
	Epsilon float32
}

// askFusions notes what ONNX Runtime fuses, for the operators whose results have the bits of an unpatched session; without an
// answer they are left.
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
