package verification

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/conformance"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/tensor"
)

// The tasks of a child process that runs a library. The child opens it once and holds it open.
const (
	taskDescribe = "describe"
	taskProbe    = "probe"
	taskCase     = "case"
	taskRules    = "rules"
)

// Tasks are what an executable that can be a child does for this package: pass them to worker.Main.
func Tasks() map[string]worker.Handler {
	return map[string]worker.Handler{
		taskDescribe: worker.Handle(func(_ context.Context, at libraryAt) (reply[*plugin.Info], error) {
			p, err := at.open()
			if err != nil {
				return failure[*plugin.Info](err)
			}
			return reply[*plugin.Info]{Value: p.Info}, nil
		}),
		taskProbe: worker.Handle(func(_ context.Context, at libraryAt) (reply[probeAnswer], error) {
			p, err := at.open()
			if err != nil {
				return failure[probeAnswer](err)
			}
			score, reason, err := p.Probe(tensor.Device{Kind: at.Device})
			if err != nil {
				return failure[probeAnswer](err)
			}
			return reply[probeAnswer]{Value: probeAnswer{Score: score, Reason: reason}}, nil
		}),
		taskCase: worker.Handle(func(ctx context.Context, request caseRequest) (reply[*conformance.Result], error) {
			p, err := request.At.open()
			if err != nil {
				return failure[*conformance.Result](err)
			}
			result, err := conformance.Run(ctx, p, &p.Manifest.Cases[request.Case])
			if err != nil {
				return failure[*conformance.Result](err)
			}
			return reply[*conformance.Result]{Value: result}, nil
		}),
		taskRules: worker.Handle(func(ctx context.Context, request caseRequest) (reply[[]Rule], error) {
			p, err := request.At.open()
			if err != nil {
				return failure[[]Rule](err)
			}
			list, err := conformance.Rules(ctx, p, &p.Manifest.Cases[request.Case])
			if err != nil {
				return failure[[]Rule](err)
			}
			return reply[[]Rule]{Value: list}, nil
		}),
	}
}

// libraryAt names a library for the child, and all that its folder must hold: what is recorded is what ran.
type libraryAt struct {
	Folder string
	Device string
	Files  content.Files
}

// opened is the child's library.
var opened struct {
	sync.Mutex
	plugin *plugin.Plugin
}

func (at libraryAt) open() (*plugin.Plugin, error) {
	opened.Lock()
	defer opened.Unlock()
	if p := opened.plugin; p != nil && p.Folder == at.Folder && p.Variant.Device == at.Device {
		return p, nil
	}
	p, err := plugin.Open(at.Folder, plugin.OpenOptions{Device: at.Device, AcceptUnverified: true, Files: at.Files})
	if err == nil {
		opened.plugin = p
	}
	return p, err
}

type probeAnswer struct {
	Score  int
	Reason string
}

type caseRequest struct {
	At   libraryAt
	Case int // index into Manifest.Cases
	Name string
}

// Doing names the case for errors.
func (r caseRequest) Doing() string { return fmt.Sprintf("case %q", r.Name) }

// reply carries a value or an *diagnostic.Error with its kind.
type reply[T any] struct {
	Value T
	Error *wireError
}

// wireError is an *diagnostic.Error on its way between processes.
type wireError struct {
	Kind                     int // index into kinds
	Path, Found, Needed, Fix string
}

var kinds = []error{refusal.ErrVerification, refusal.ErrManifest, refusal.ErrIncompatible, refusal.ErrArchive,
	refusal.ErrNotFound, refusal.ErrStore, refusal.ErrKernel, refusal.ErrFold, refusal.ErrDevice}

// failure packs an error; one that is not an *diagnostic.Error travels as text.
func failure[T any](err error) (reply[T], error) {
	var e *diagnostic.Error
	if !errors.As(err, &e) {
		return reply[T]{}, err
	}
	w := &wireError{Path: e.Path, Found: e.Found, Needed: e.Needed, Fix: e.Fix}
	for i, kind := range kinds {
		if e.Kind == kind {
			w.Kind = i
		}
	}
	return reply[T]{Error: w}, nil
}

// ask runs a task in the child. What the child cannot answer, because the library ended it, is an error
// of kind ErrVerification.
func ask[T any](ctx context.Context, child *worker.Child, task string, request any) (T, error) {
	var answer reply[T]
	err := child.Run(ctx, task, request, &answer)
	switch {
	case err != nil && ctx.Err() != nil:
		return answer.Value, ctx.Err()
	case err != nil:
		return answer.Value, ofChild(err)
	case answer.Error != nil:
		w := answer.Error
		kind := refusal.ErrVerification
		if w.Kind >= 0 && w.Kind < len(kinds) {
			kind = kinds[w.Kind]
		}
		return answer.Value, &diagnostic.Error{Kind: kind, Path: w.Path, Found: w.Found, Needed: w.Needed, Fix: w.Fix}
	}
	return answer.Value, nil
}
