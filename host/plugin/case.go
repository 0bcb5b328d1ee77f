package plugin

// Case is one conformance case: an operator run on given inputs, and what must come out.
type Case struct {
	Name       string      `json:"name"`
	Operator   string      `json:"operator"`
	Attributes []Attribute `json:"attributes,omitempty"`
	Inputs     []CaseInput `json:"inputs"` // in the operator's order
	Expect     Expect      `json:"expect"`
	Tolerance  Tolerance   `json:"tolerance"`

	line int
}

// CaseInput is a tensor made from a seed, or absent.
type CaseInput struct {
	Name   string  `json:"name"`
	DType  string  `json:"dtype"` // ONNX name in lower case: float, float16, int64, bool...; default float
	Shape  []int64 `json:"shape"`
	Seed   uint64  `json:"seed"`
	Absent bool    `json:"absent,omitempty"`
	// Values, when given, are the elements in row-major order, in place of ones made from the seed.
	Values []float64 `json:"values,omitempty"`
}

// Expect says where the right answer comes from: a .npz file in the plugin's folder, or the name of a
// float64 reference that the host has.
type Expect struct {
	File      string `json:"file,omitempty"`
	Reference string `json:"reference,omitempty"`
}

// Tolerance bounds |got - want| by Absolute + Relative*|want|.
type Tolerance struct {
	Absolute float64 `json:"absolute"`
	Relative float64 `json:"relative"`
}
