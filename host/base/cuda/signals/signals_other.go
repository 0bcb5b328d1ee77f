//go:build !(linux && (amd64 || arm64))

package signals

import "syscall"

// Preserve calls f.
func Preserve(f func()) { f() }

// Hold gives a function that does nothing.
func Hold(...syscall.Signal) (again func()) { return func() {} }
