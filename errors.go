package graft

import (
	"errors"
	"fmt"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/encode/batch"
	"github.com/opgraft/graft/host/generate/decode"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/session/patch"
)

// Errors are told apart with [errors.Is]. Their texts name the file, what was found
// there, what is needed, and what to do.
var (
	// ErrNoRuntime: there is no ONNX Runtime to work with. [Enable] found none in the process,
	// [NewGenerator] and [RuntimePath] found no library, or what was found is too old or
	// cannot be loaded.
	ErrNoRuntime = errors.New("no usable onnxruntime")
	// ErrNoPlugin: no plugin was found, or none of a name that was asked for.
	ErrNoPlugin = errors.New("no plugin")
	// ErrBadPlugin: plugins were found, and none could be loaded: a manifest that cannot be read,
	// a library for another machine or another version, or one whose hash is not recorded. Or a [Lock] names what is not
	// there, or differs.
	ErrBadPlugin = errors.New("bad plugin")
	// ErrBadModel: a model, or something else in its folder, cannot be read or is not supported.
	// Where a file is missing or may not be read, [errors.Is] also finds [io/fs.ErrNotExist] or
	// [io/fs.ErrPermission].
	ErrBadModel = errors.New("bad model")
	// ErrOption: an option is unknown, out of range, contradicts another, or cannot apply to the
	// call that it was given to.
	ErrOption = errors.New("bad option")
	// ErrNothingReplaced: [Patch] found no block that a plugin should replace. The text says why.
	ErrNothingReplaced = errors.New("nothing replaced")
	// ErrClosed: the [Generator], [Batcher], [Embedder] or [Reranker] was closed.
	ErrClosed = decode.ErrClosed
	// ErrQueueFull: as many inputs wait for a [Batcher], or for an encoder's, as may ([BatchQueue]).
	ErrQueueFull = errors.New("the queue is full")
)

// InputError says why there is no result for one input. The inputs beside it are
// not affected.
type InputError struct {
	Index int // the input's number, from 0
	Err   error
}

func (e *InputError) Error() string { return fmt.Sprintf("input %d: %v", e.Index, e.Err) }

// Unwrap gives the cause.
func (e *InputError) Unwrap() error { return e.Err }

// failure is an error that has a kind of this package. Its text is that of the cause.
type failure struct{ kind, cause error }

func (f *failure) Error() string   { return f.cause.Error() }
func (f *failure) Unwrap() []error { return []error{f.kind, f.cause} }

// kinds are those of this package by the host's.
var kinds = []struct{ host, kind error }{
	{ort.ErrNotLoaded, ErrNoRuntime},
	{ort.ErrNotFound, ErrNoRuntime},
	{ort.ErrTooOld, ErrNoRuntime},
	{ort.ErrUnusable, ErrNoRuntime},
	{refusal.ErrNotFound, ErrNoPlugin},
	{refusal.ErrManifest, ErrBadPlugin},
	{refusal.ErrIncompatible, ErrBadPlugin},
	{refusal.ErrVerification, ErrBadPlugin},
	{batch.ErrClosed, ErrClosed},
	{batch.ErrFull, ErrQueueFull},
}

// public gives an error its kind: that of its cause where the host knows it, else usual, which
// may be nil. An error that ends a context has none.
func public(err, usual error) error {
	if err == nil {
		return nil
	}
	for _, k := range kinds {
		if errors.Is(err, k.host) {
			return &failure{k.kind, err}
		}
	}
	if usual == nil || errors.Is(err, usual) {
		return err
	}
	return &failure{usual, err}
}

// refuse is an error about an option.
func refuse(format string, values ...any) error {
	return &failure{ErrOption, fmt.Errorf(format, values...)}
}

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
