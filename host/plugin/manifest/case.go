package manifest

// Case is one conformance case: an operator run on given inputs, or the fold of an operator on given
// constants, and what must come out.
type Case struct {
	Name       string      `json:"name"`
	Operator   string      `json:"operator"`
	Attributes []Attribute `json:"attributes,omitempty"`
	Inputs     []CaseInput `json:"inputs"` // those not named are absent
	// Fold makes this a case of the operator's fold: Inputs and Outputs are empty.
	Fold *CaseFold `json:"fold,omitempty"`
	// Outputs names the outputs to request; empty for all that the operator must have.
	Outputs   []string  `json:"outputs,omitempty"`
	Expect    Expect    `json:"expect"`
	Tolerance Tolerance `json:"tolerance"`

	line int
}

// CaseFold is what goes into a fold: float64 and int64 constants.
type CaseFold struct {
	Constants []CaseInput `json:"constants"`
}

// CaseInput is a tensor with given elements, or with random ones of a seed, uniform in [Min, Max].
type CaseInput struct {
	Name   string  `json:"name"`
	DType  string  `json:"dtype"` // float32, float16, int64, bool...
	Shape  []int64 `json:"shape"`
	Seed   uint64  `json:"seed"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Values Floats  `json:"values,omitempty"` // row-major; nil for random ones of Seed
	// Packed is float16 or bfloat16 where a float32 tensor is the memory of twice as many such numbers.
	Packed string `json:"packed,omitempty"`
	// Constant: the kernel is given it when it is made, as a model's constant.
	Constant bool `json:"constant,omitempty"`
}

// Expect says where the right answer comes from; exactly one member is set.
type Expect struct {
	// Formula gives each output an expression over the inputs, element by element: + - * / ^, numbers,
	// pi, the names of inputs, and functions of package formula. An input of one element goes with all.
	Formula map[string]string `json:"formula,omitempty"`
	// Reference names an operator of References.
	Reference string `json:"reference,omitempty"`
	// Values gives each output its elements, row-major. Of a fold, an output is a constant that it emits.
	Values map[string]Floats `json:"values,omitempty"`
	// Refused is, of a fold, a part of the text with which the constants are refused.
	Refused string `json:"refused,omitempty"`
}

// Tolerance bounds |got - want| by Absolute + Relative*|want|.
type Tolerance struct {
	Absolute float64 `json:"absolute"`
	Relative float64 `json:"relative"`
}

// References are the operators that package conformance computes in float64, for Expect;
// FoldReferences those whose fold it computes.
var (
	References     = []string{"attention", "cached-attention", "linear"}
	FoldReferences = []string{"cached-attention"}
)
