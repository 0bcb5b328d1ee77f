// Package python runs patched files in Python's onnxruntime, the oldest that is
// supported and the newest, with the plugins registered as any Python program
// registers custom operators. Its tests need the environments that `make peers`
// makes under build/peers.
package python
