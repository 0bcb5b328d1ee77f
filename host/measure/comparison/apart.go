package comparison

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/memory"
	"github.com/opgraft/graft/host/base/worker"
	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/session/loaded"
)

// Job is a comparison that a child process does, so that a plugin which crashes, ends the process or hangs is an error.
type Job struct {
	Model   string
	Options Options
	Runtime string   // path of ONNX Runtime's library; "" to find it
	Folders []string // of plugins, searched first
	// Memory also measures the memory of each side, in a process of its own.
	Memory bool `json:"-"`
	// Deadline is how long opening both sides may take, and how long one round, or about a second of rounds; 0 is
	// DefaultDeadline.
	Deadline time.Duration `json:"-"`
	// Output gets what the child prints, such as warnings of ONNX Runtime; nil for silence.
	Output io.Writer `json:"-"`
	// Refused is told of plugins that were left out; nil for silence.
	Refused func(why string) `json:"-"`
}

// DefaultDeadline bounds a stage of a comparison in a child process.
const DefaultDeadline = 10 * time.Minute

// Apart is Run in a child process: this executable, whose main calls worker.Main with Tasks. It is held as one that
// runs a plugin for the first time, but that it may take all of the machine's memory. What ends it is an error of
// kind worker.ErrEnded, and what takes too long one of worker.ErrDeadline; other errors are those of Run.
func Apart(ctx context.Context, j Job) (*Result, error) {
	j.Options.Others, j.Options.Axes = nil, nil
	s, err := SweepApart(ctx, j)
	if err != nil {
		return nil, err
	}
	return s.Result(), nil
}

// SweepApart is Sweep in a child process, as Apart is Run in one.
func SweepApart(ctx context.Context, j Job) (*Swept, error) {
	j.Options.step("opening the sides")
	child, err := Start(ctx, worker.Options{Subject: j.Model, Deadline: j.Deadline, Output: j.Output,
		Starts: isolates(j.Options.names()...)})
	if err != nil {
		return nil, err
	}
	s, err := run(ctx, &apart{child, j}, j.Model, j.Options)
	child.Close()
	if err != nil || !j.Memory {
		return s, err
	}
	sides := []*Opened{&s.A}
	for i := range s.Sides {
		sides = append(sides, &s.Sides[i])
	}
	return s, j.footprints(ctx, sides)
}

// Start starts a child process for sessions of a model, o.Subject. Without a bound it may take all of the machine's
// memory; a deadline of 0 is DefaultDeadline. What a task of it ends in, Ended words.
func Start(ctx context.Context, o worker.Options) (*worker.Child, error) {
	if o.Deadline <= 0 {
		o.Deadline = DefaultDeadline
	}
	if o.Memory <= 0 {
		o.Memory = 2 * memory.Half()
	}
	return worker.Start(ctx, o)
}

// apart are the stages in a child.
type apart struct {
	child *worker.Child
	job   Job
}

// The child's tasks, which are its stages.
const (
	taskOpen        = "comparison"
	taskCell        = "comparison cell"
	taskRounds      = "comparison rounds"
	taskEnvironment = "comparison environment"
)

type openAnswer struct {
	Opened  []Opened
	Refused []string
}

type roundsRequest struct{ Warmup, AtMost int }

func (a *apart) open(ctx context.Context) ([]Opened, error) {
	answer, err := Ask[openAnswer](ctx, a.child, taskOpen, a.job)
	if a.job.Refused != nil {
		for _, why := range answer.Refused {
			a.job.Refused(why)
		}
	}
	return answer.Opened, err
}

func (a *apart) cell(ctx context.Context, at int) (*Cell, error) {
	return Ask[*Cell](ctx, a.child, taskCell, at)
}

func (a *apart) rounds(ctx context.Context, warmup, atMost int) ([][]float64, error) {
	return Ask[[][]float64](ctx, a.child, taskRounds, roundsRequest{warmup, atMost})
}

func (a *apart) environment(ctx context.Context) (Environment, error) {
	return Ask[Environment](ctx, a.child, taskEnvironment, struct{}{})
}

// Tasks are what an executable that can be a child does for Apart: pass them to worker.Main. A child does one
// comparison.
func Tasks() map[string]worker.Handler {
	var h *here
	var once sync.Once
	opened := func() (*here, error) {
		if h == nil || h.opened == nil {
			return nil, errors.New("no comparison is open")
		}
		return h, nil
	}
	return map[string]worker.Handler{
		taskOpen: Task(func(ctx context.Context, j Job) (a openAnswer, err error) {
			err = errors.New("a comparison is open")
			once.Do(func() {
				h = &here{path: j.Model, options: j.Options}
				if h.library, err = ort.FindAndOpen(j.Runtime); err != nil {
					return
				}
				needed := slices.ContainsFunc(j.Options.names(), func(name string) bool { return name != "none" })
				if h.set, a.Refused, err = Plugins(j.Folders, needed); err == nil {
					a.Opened, err = h.open(ctx)
				}
			})
			return a, err
		}),
		taskFootprint: Task(func(ctx context.Context, r footprintRequest) (Footprint, error) { return r.footprint(ctx) }),
		taskCell: Task(func(ctx context.Context, at int) (*Cell, error) {
			h, err := opened()
			if err != nil {
				return nil, err
			}
			return h.cell(ctx, at)
		}),
		taskRounds: Task(func(ctx context.Context, r roundsRequest) ([][]float64, error) {
			h, err := opened()
			if err != nil {
				return nil, err
			}
			return h.rounds(ctx, r.Warmup, r.AtMost)
		}),
		taskEnvironment: Task(func(ctx context.Context, _ struct{}) (e Environment, err error) {
			h, err := opened()
			if err == nil {
				e, err = h.environment(ctx)
			}
			return e, err
		}),
	}
}

// Plugins loads those of folders, and lists those that are left out, in words. None at all are an error where they
// are needed.
func Plugins(folders []string, needed bool) (set *loaded.Set, refused []string, err error) {
	set, err = loaded.Load(folders, false)
	if err != nil && needed {
		return nil, nil, err
	}
	for _, why := range set.Refused {
		refused = append(refused, "left out: "+why.Error())
	}
	if err != nil && len(set.Refused) == 0 {
		refused = append(refused, err.Error())
	}
	return set, refused, nil
}

// reply is an answer, or an error on its way between processes.
type reply[T any] struct {
	Value T
	Error *wireError
}

// wireError is an error's text with the parts of the *diagnostic.Error that it ends in, if it does.
type wireError struct {
	Before                   string // all of the text without such an error
	Parts                    bool
	Kind                     int // index into kinds, or -1
	Path, Found, Needed, Fix string
}

// kinds are those that callers tell apart.
var kinds = []error{ErrSame, refusal.ErrIncompatible, refusal.ErrVerification, refusal.ErrNotFound, ort.ErrNotFound}

func replied[T any](value T, err error) reply[T] {
	if err == nil {
		return reply[T]{Value: value}
	}
	w := &wireError{Before: err.Error(), Kind: -1}
	for i, kind := range kinds {
		if errors.Is(err, kind) {
			w.Kind = i
		}
	}
	var e *diagnostic.Error
	if errors.As(err, &e) && strings.HasSuffix(w.Before, e.Error()) {
		w.Before, w.Parts = strings.TrimSuffix(w.Before, e.Error()), true
		w.Path, w.Found, w.Needed, w.Fix = e.Path, e.Found, e.Needed, e.Fix
	}
	return reply[T]{Value: value, Error: w}
}

// err is the error as it was in the child.
func (w *wireError) err() error {
	var kind error
	if w.Kind >= 0 && w.Kind < len(kinds) {
		kind = kinds[w.Kind]
	}
	if !w.Parts {
		return &diagnostic.Error{Kind: kind, Found: w.Before}
	}
	e := &diagnostic.Error{Kind: kind, Path: w.Path, Found: w.Found, Needed: w.Needed, Fix: w.Fix}
	if w.Before == "" {
		return e
	}
	return fmt.Errorf("%s%w", w.Before, e)
}

// Task makes a handler of a stage whose errors, unlike those of worker.Handle, come out of Ask as they went into it.
func Task[Request, Result any](do func(context.Context, Request) (Result, error)) worker.Handler {
	return worker.Handle(func(ctx context.Context, request Request) (reply[Result], error) {
		return replied(do(ctx, request)), nil
	})
}

// Ask runs a stage in the child, a handler that Task made.
func Ask[T any](ctx context.Context, child *worker.Child, task string, request any) (T, error) {
	var answer reply[json.RawMessage]
	var value T
	if err := child.Run(ctx, task, request, &answer); err != nil {
		return value, Ended(err)
	}
	if len(answer.Value) > 0 {
		if err := json.Unmarshal(answer.Value, &value); err != nil {
			return value, fmt.Errorf("cannot read the result of task %s: %w", task, err)
		}
	}
	if answer.Error != nil {
		return value, answer.Error.err()
	}
	return value, nil
}

// Ended says of a child that a task ended what it ran, and what to do.
func Ended(err error) error {
	var e *diagnostic.Error
	if !errors.As(err, &e) || errors.Is(err, worker.ErrTask) {
		return err
	}
	said := *e
	said.Fix = "a plugin may have a fault, or ONNX Runtime: graft ab --b none runs the model without plugins, and " +
		"graft plugin verify tries each of them"
	if errors.Is(err, worker.ErrDeadline) {
		said.Fix = "a plugin may hang, as graft plugin verify finds out, or allow more time with --deadline"
	}
	return &said
}
