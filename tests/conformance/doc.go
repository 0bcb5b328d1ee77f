// Package conformance runs ONNX's node conformance cases through patched
// sessions: what graft does while a session is created must not change what any
// operator of ONNX computes. Its tests need the cases that `make peers` writes to
// build/peers/cases.
package conformance
