// Package languages runs programs in C++, Java, C#, JavaScript, Rust and Go with libgraft.so before ONNX Runtime.
package languages
