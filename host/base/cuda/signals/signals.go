// Package signals restores Go's signal handlers after native code has installed its own.
//
// Go turns a nil dereference into a panic, stops a goroutine that runs too long, and takes profiles, all
// with signal handlers of its own, and runs them on a stack that it has for them. A library that replaces
// such a handler, or installs one without the flag SA_ONSTACK, breaks this: "non-Go code set up signal
// handler without SA_ONSTACK flag". CUDA's driver does, when it starts and at some later first uses.
// [Preserve] runs such code and then puts things right:
//
//   - a signal that Go handled before is Go's again;
//   - a handler that native code installed for another signal stays, and gets SA_ONSTACK.
//
// Between the library's sigaction and the end of Preserve its handler is in force; nothing can be done about
// that from inside the process. [os/signal.Notify], Stop and Ignore may be called meanwhile and hold.
//
// [Hold] is for signals that must reach the program whenever native code takes them.
//
// It talks to the kernel rather than to the C library, so that programs without cgo have it too. Where
// there is no such kernel (anything but Linux on amd64 and arm64), Preserve only calls its function.
package signals
