// Command gen writes what follows from graft_plugin.h and graft_cache.h: the Go mirror of their structs,
// constants and functions, Rust's, and the sizes and offsets of structs that all sides assert. From ONNX Runtime's
// C header it takes what the kits use of it, for C and for Rust, and the places of the functions that the host calls.
//
//	go run ./abi/gen        (from the repository's root; go generate ./host/base/abi does the same)
//
// It reads a restricted C: object-like macros with one number or string, typedef struct with members of
// fixed-width types, pointers and function pointers, and static inline functions of int64_t that return
// one arithmetic expression. Anything else in a header is an error, which holds the headers within what
// other languages can mirror as well.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/storage"
)

// Files of the repository, relative to its root.
const (
	headerPath = "abi/graft_plugin.h"
	cachePath  = "abi/graft_cache.h"
	layoutPath = "host/base/abi/layout_gen_test.go"
	assertPath = "abi/graft_plugin_layout.h"
	ortPath    = "abi/graft_ort.h"
	rustPath   = "abi/rust/src/abi.rs"
	rustORTAt  = "abi/rust/src/ort.rs"
	slotsPath  = "host/ort/internal/slot/slot_gen.go"
)

// mirrors are the Go files of the headers.
var mirrors = map[string]string{headerPath: "host/base/abi/abi_gen.go", cachePath: "host/base/abi/cache_gen.go"}

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for path, data := range files {
		full := filepath.Join(root, path)
		if old, err := os.ReadFile(full); err == nil && bytes.Equal(old, data) {
			continue
		}
		if err := storage.Write(full, data, storage.Shared); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the contents of the files that follow from the headers under root.
func generate(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	var headers []*header
	paths := []string{headerPath, cachePath}
	for _, path := range paths {
		h, err := read(root, path)
		if err != nil {
			return nil, err
		}
		headers = append(headers, h)
		if files[mirrors[path]], err = goMirror(path, h); err != nil {
			return nil, err
		}
		if path != headerPath {
			continue
		}
		if files[layoutPath], err = goLayout(h); err != nil {
			return nil, err
		}
		files[assertPath] = cAsserts(h)
	}
	var err error
	if files[rustPath], err = rustMirror(paths, headers); err != nil {
		return nil, err
	}
	text, err := ortHeaders()
	if err != nil {
		return nil, err
	}
	o, err := parseORT(text)
	if err != nil {
		return nil, err
	}
	files[ortPath], files[rustORTAt] = cORT(o), rustORT(o)
	files[slotsPath], err = slots(root, text)
	return files, err
}

// read parses the header at a path under root.
func read(root, path string) (*header, error) {
	source, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, err
	}
	h, err := parse(string(source))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}
