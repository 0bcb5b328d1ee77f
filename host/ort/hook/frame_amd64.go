package hook

// A frame is the call of a function that runs a session, as stub_amd64.s leaves it on C's stack.
type frame struct {
	registers [6]uintptr
	site      uintptr
	status    uintptr // an OrtStatus, if it ran
	ran       uintptr // 1 after the run, 0 in its place
	_         uintptr // the return address
	stack     [2]uintptr
}

// args are the arguments, at most eight; what follows those of the function means nothing.
func (f *frame) args() (list [8]uintptr) {
	copy(list[copy(list[:], f.registers[:]):], f.stack[:])
	return list
}
