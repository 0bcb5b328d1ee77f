package plan

// SetNBitsKnown has tests plan as on a CPU whose times are known, or not, until they undo it.
func SetNBitsKnown(known bool) (undo func()) {
	before := nbitsKnown
	nbitsKnown = func() bool { return known }
	return func() { nbitsKnown = before }
}
