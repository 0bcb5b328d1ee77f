package graft

import (
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/session/patch"
	"github.com/opgraft/graft/internal/opening"
)

// Errors of this package, textgen and embed are told apart with [errors.Is]. Their texts name the file, what was found
// there, what is needed, and what to do.
var (
	// ErrNoRuntime: there is no ONNX Runtime to work with. [EnableWith] found none in the process, others found no
	// library, or what was found is too old or cannot be loaded.
	ErrNoRuntime = opening.ErrNoRuntime
	// ErrNoPlugin: no plugin was found, or none of a name that was asked for.
	ErrNoPlugin = opening.ErrNoPlugin
	// ErrBadPlugin: plugins were found, and none could be loaded: a manifest that cannot be read, a library for another
	// machine or another version, or one whose hash is not recorded. Or Common.Lock names what is not there or differs.
	ErrBadPlugin = opening.ErrBadPlugin
	// ErrBadModel: a model, or something else in its folder, cannot be read or is not supported. Where a file is missing
	// or may not be read, [errors.Is] also finds [io/fs.ErrNotExist] or [io/fs.ErrPermission].
	ErrBadModel = opening.ErrBadModel
	// ErrOption: an option is unknown, out of range, contradicts another, or cannot apply to the call.
	ErrOption = opening.ErrOption
	// ErrNothingReplaced: [Patch] found no block that a plugin should replace. The text says why.
	ErrNothingReplaced = opening.ErrNothingReplaced
	// ErrClosed: the generator, embedder, reranker or batcher was closed.
	ErrClosed = opening.ErrClosed
	// ErrQueueFull: as many inputs wait for an embedder, reranker or batcher as may.
	ErrQueueFull = opening.ErrQueueFull
)

// InputError says why there is no result for one input of a call of textgen or embed. The inputs beside it are not
// affected.
type InputError struct {
	Index int // the input's number, from 0
	Err   error
}

func (e *InputError) Error() string { return fmt.Sprintf("input %d: %v", e.Index, e.Err) }

// Unwrap gives the cause.
func (e *InputError) Unwrap() error { return e.Err }

// nothing says why a plan replaces nothing.
func nothing(path string, a *patch.Analysis) error {
	e := &diagnostic.Error{Kind: ErrNothingReplaced, Path: path, Found: "no block that a plugin could replace",
		Fix: "graft inspect shows what was recognised"}
	p := a.Plan
	if a.Obstacle != "" {
		e.Found, e.Fix = a.Obstacle, "patch the model as it was exported"
		return e
	}
	if len(p.Choices) == 0 {
		return e
	}
	e.Found = fmt.Sprintf("nothing to replace among %d blocks%s", len(p.Choices), p.Left())
	return e
}
