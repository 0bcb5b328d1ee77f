// Package slot has the places of functions in ONNX Runtime's tables, by the names that they have in its C header. A
// function that the packages around this one name, and that is not here yet, comes with go generate.
package slot

//go:generate sh -c "cd ../../../.. && go run ./abi/gen"

// A Slot is the index of a function pointer in OrtApi. ONNX Runtime only appends to that struct, so an index holds for
// every later release.
type Slot int

// An EditorSlot is an index in OrtModelEditorApi, the table that GetModelEditorApi returns.
type EditorSlot int

// A CompilerSlot is an index in OrtCompileApi, the table that GetCompileApi returns.
type CompilerSlot int
