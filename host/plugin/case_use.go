package plugin

// Tensors makes the case's inputs in the operator's order, nil where one is absent. Each call makes new
// ones with the same elements.
func (c *Case) Tensors(op *OperatorInfo) ([]*Tensor, error) { return caseTensors(c, op) }

// Wanted says, in the operator's order, which outputs the case asks for.
func (c *Case) Wanted(op *OperatorInfo) ([]bool, error) { return caseOutputs(c, op) }

// Floats are the elements of a compact tensor in host memory, whatever its type.
func (t *Tensor) Floats() []float64 { return t.floats() }
