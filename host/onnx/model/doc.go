// Package model reads an ONNX file safely and writes one back. Nothing in the
// file is executed, and weights are found by offset.
//
// Open reads the structure of a file: nodes, names, types and small
// tensors become an onnx.Model, and every larger tensor (Limits.Inline) becomes
// a reference to the bytes where they already lie, in the model file or in its
// external data. A 6 GB model therefore opens without touching its weights. Nothing
// of a file stays mapped: whoever changes it, or cuts it short, is noticed when
// weights are read, and reaches nothing that was read before.
//
// A referring tensor looks like any other onnx.Tensor with its name, dims and
// data type, has data_location EXTERNAL, and carries a private external_data
// entry that only its Model understands. It may be moved, renamed, reshaped and
// cloned (proto.Clone) freely; Model.Data, Int64s and Float64s read it, and
// Model.Serialize and Model.Write give it a place that a runtime understands.
//
// What is wrong with a file is always told as one *Error.
package model
