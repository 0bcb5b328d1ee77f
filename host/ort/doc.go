// Package ort finds, fetches and drives ONNX Runtime through its C API table, without cgo.
//
// It has four parts:
//
//   - finding the runtime: [Find] searches for libonnxruntime, [Fetch] brings the pinned release
//     with an ordinary package client, [Open] maps it, [Loaded] finds the one that another binding
//     has already mapped into the process;
//   - the hook: [Library.Install] puts a [Patcher] before every function of the C API that
//     creates a session, so that sessions made by any binding in the process are patched, and
//     watches which execution providers their options are given: [Request.Appended];
//   - sessions: [Library.NewSession] and [Library.NewSessionFromBytes], tensors over Go memory,
//     over memory of the runtime, or over device memory, and [Binding] for runs that reuse buffers;
//   - errors: everything that ONNX Runtime refuses becomes an [*Error] with its code and message.
//
// # Calling C
//
// The runtime's API is one table of function pointers (slots.go names the ones in use; a test
// checks them against the C header). The table is reached through purego, so the package works
// with CGO_ENABLED=0 and beside bindings that use cgo. OrtGetApiBase().GetApi returns the same
// table for every version that is asked for, which is why one patched table is enough for the process.
package ort
