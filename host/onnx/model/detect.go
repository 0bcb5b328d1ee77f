package model

import (
	"bytes"
	"cmp"
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// signatures are files that people take for an ONNX model, by how they begin.
var signatures = []struct {
	at    int
	magic string
	found string
	fix   string
}{
	{0, "version https://git-lfs.github.com/spec/", "a Git LFS pointer",
		"this is a Git LFS pointer; fetch the file with git lfs pull"},
	{4, "ORTM", "a model in ORT format", "an .ort file cannot be patched: give the .onnx file that it was made from"},
	{0, "\x89PNG", "a PNG image", ""},
	{0, "\xff\xd8\xff", "a JPEG image", ""},
	{0, "PK\x03\x04", "a zip archive (PyTorch checkpoints are such too)", "unpack it, or export the checkpoint to ONNX"},
	{0, "\x1f\x8b", "a gzip archive", "unpack it"},
	{0, "BZh", "a bzip2 archive", "unpack it"},
	{0, "\xfd7zXZ", "an xz archive", "unpack it"},
	{0, "\x28\xb5\x2f\xfd", "a zstd archive", "unpack it"},
	{257, "ustar", "a tar archive", "unpack it"},
	{0, "GGUF", "a GGUF model", "export the model to ONNX"},
	{4, "TFL3", "a TensorFlow Lite model", "export the model to ONNX"},
	{0, "\x89HDF", "an HDF5 file", "export the model to ONNX"},
	{0, "\x80\x02", "a Python pickle", "export the model to ONNX"},
	{0, "\x80\x04", "a Python pickle", "export the model to ONNX"},
	{0, "\x7fELF", "an ELF program or library", ""},
	{0, "<!DOCTYPE", "a web page", "fetch the file itself rather than the page about it"},
	{0, "<!doctype", "a web page", "fetch the file itself rather than the page about it"},
	{0, "<html", "a web page", "fetch the file itself rather than the page about it"},
	{8, `{"`, "a safetensors file", "export the model to ONNX"},
}

// looksWrong tells a file that is not ONNX at all from one that might be. Only
// the first bytes are read.
func looksWrong(b []byte) error {
	const needed, fix = "an ONNX model", "give the path of an .onnx file"
	if len(b) == 0 {
		return &diagnostic.Error{Kind: ErrNotModel, Found: "the file is empty", Needed: needed,
			Fix: "fetch or export it again"}
	}
	for _, s := range signatures {
		if len(b) >= s.at+len(s.magic) && string(b[s.at:s.at+len(s.magic)]) == s.magic {
			return &diagnostic.Error{Kind: ErrNotModel, Found: "not an ONNX model: found " + s.found, Needed: needed,
				Fix: cmp.Or(s.fix, fix)}
		}
	}
	num, typ, n := protowire.ConsumeTag(b)
	if n > 0 {
		if f, ok := fields[kindModel][num]; ok && f.fits(kindModel, num, typ, 0) == nil {
			return nil
		}
		// Training information and device configurations, passed through.
		if (num == 20 || num == 26) && typ == protowire.BytesType {
			return nil
		}
	}
	return &diagnostic.Error{Kind: ErrNotModel, Found: "not an ONNX model: found " + firstBytes(b), Needed: needed,
		Fix: fix}
}

// firstBytes describes how an unknown file begins.
func firstBytes(b []byte) string {
	head := b[:min(len(b), 24)]
	if line, _, _ := bytes.Cut(head, []byte("\n")); len(line) > 3 && utf8.Valid(line) &&
		bytes.IndexFunc(line, func(c rune) bool { return c < ' ' && c != '\t' && c != '\r' }) < 0 {
		return fmt.Sprintf("text that begins with %q", line)
	}
	return fmt.Sprintf("a file that begins with the bytes % x", head[:min(len(head), 8)])
}
