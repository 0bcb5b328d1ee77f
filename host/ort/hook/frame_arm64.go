package hook

// A frame is the call of a function that runs a session, as stub_arm64.s leaves it on C's stack.
type frame struct {
	registers [8]uintptr
	site      uintptr
	status    uintptr // an OrtStatus, if it ran
	ran       uintptr // 1 after the run, 0 in its place
}

// args are the arguments, at most eight; what follows those of the function means nothing.
func (f *frame) args() [8]uintptr { return f.registers }
