// Command gen writes what follows from graft_plugin.h: the Go mirror of its structs and constants, and
// the sizes and offsets that both sides assert.
//
//	go run ./abi/gen        (from the repository's root; go generate ./host/abi does the same)
//
// It reads a restricted C: object-like macros with one number or string, and typedef struct with members
// of fixed-width types, pointers and function pointers. Anything else in the header is an error, which
// keeps the header within what other languages can mirror as well.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
)

// Files of the repository, relative to its root.
const (
	headerPath = "abi/graft_plugin.h"
	mirrorPath = "host/abi/abi_gen.go"
	layoutPath = "host/abi/layout_gen_test.go"
	assertPath = "abi/graft_plugin_layout.h"
)

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
		if err := os.WriteFile(full, data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the contents of the files that follow from the header under root.
func generate(root string) (map[string][]byte, error) {
	source, err := os.ReadFile(filepath.Join(root, headerPath))
	if err != nil {
		return nil, err
	}
	header, err := parse(string(source))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", headerPath, err)
	}
	mirror, err := goMirror(header)
	if err != nil {
		return nil, err
	}
	layout, err := goLayout(header)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{mirrorPath: mirror, layoutPath: layout, assertPath: cAsserts(header)}, nil
}
