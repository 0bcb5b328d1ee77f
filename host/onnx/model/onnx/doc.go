// Package onnx is the Go form of the ONNX file format, generated from
// onnx.proto beside it. It holds data only; host/onnx/model reads files into it.
package onnx

//go:generate protoc --go_out=. --go_opt=paths=source_relative onnx.proto
