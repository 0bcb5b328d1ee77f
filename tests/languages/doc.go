// Package languages runs programs in C++, Java, JavaScript, Rust and Go with libgraft.so before ONNX Runtime.
package languages
