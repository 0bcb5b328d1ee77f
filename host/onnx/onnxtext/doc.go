// Package onnxtext reads models in ONNX's text format, as onnx.parser does: small graphs that people write.
package onnxtext

import (
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// ErrSyntax is the kind of error of a text that is no model.
var ErrSyntax = errors.New("not a model in ONNX's text format")

// Bounds of a text.
const (
	MaxBytes    = 1 << 20
	maxDepth    = 16      // of graphs in attributes of nodes
	maxTypes    = 16      // of types in types
	maxElements = 1 << 16 // of a tensor
)

// problem is a mistake and where it is. Reading stops at the first.
type problem struct {
	line   int
	found  string
	needed string
	fix    string
}

func (p *problem) at(path string) error {
	return &diagnostic.Error{Kind: ErrSyntax, Path: fmt.Sprintf("%s:%d", path, p.line), Found: p.found, Needed: p.needed,
		Fix: p.fix}
}
