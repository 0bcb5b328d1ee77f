package plan

// SetInstructions has tests plan as on a CPU with these instructions, until they undo it.
func SetInstructions(name string) (undo func()) {
	before := instructions
	instructions = func() string { return name }
	return func() { instructions = before }
}
