// Package ort finds and drives ONNX Runtime through its C API table, without cgo.
//
// [Find] searches for libonnxruntime, which package fetch brings, [Open] maps it, and [Loaded] finds the one that
// another binding has already mapped into the process. A [Value] is a tensor over Go memory, over memory of the runtime
// or over device memory, or another value. Everything that ONNX Runtime refuses becomes an [*Error] with its code and
// message.
//
// Below it, package operator makes custom operators, package session makes and runs sessions, and package hook has
// sessions of any binding in the process be patched.
//
// # Calling C
//
// The runtime's API is one table of function pointers (internal/slot names the ones in use; a test checks them against
// the C header). The table is reached through purego, so the packages work with CGO_ENABLED=0 and beside bindings that
// use cgo. OrtGetApiBase().GetApi returns the same table for every version that is asked for, which is why one patched
// table is enough for the process.
package ort
