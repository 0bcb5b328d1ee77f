package ort

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/internal/must"
)

// TestUninstallWhileASessionIsMade: a session that is made while the hook goes has no way back, since nobody sees its
// runs and its end: the next session at its address would have it.
func TestUninstallWhileASessionIsMade(t *testing.T) {
	s := stage(t, false)
	slot := library.api + uintptr(slotDisableProfiling)*wordSize // called when what the program gave is remembered
	own := library.fn(slotDisableProfiling)
	instead := purego.NewCallback(func(options uintptr) uintptr {
		if err := library.Uninstall(); err != nil {
			t.Error(err)
		}
		status, _, _ := purego.SyscallN(own, options)
		return status
	})
	must.Succeed(t, replaceWord(slot, own, instead))
	x := session(t, s.plain, SessionOptions{})
	must.Succeed(t, replaceWord(slot, instead, own))
	if !library.hook.backs.none() || s.closed != 1 {
		t.Errorf("a way back that is never used; the plain model was released %d times", s.closed)
	}
	expect(t, "patched", run(t, x, 1, -2), 2, -2)
}

// panicking is a program's log that panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { return true }

func (panicking) Handle(context.Context, slog.Record) error { panic("no log") }

// TestLogThatPanics: on the threads of a program that calls ONNX Runtime nothing panics, and a line that is lost
// changes no answer.
func TestLogThatPanics(t *testing.T) {
	s := stage(t, false)
	active := *library.Installed()
	active.Logger = slog.New(panicking{slog.DiscardHandler})
	install(t, active)
	x := session(t, s.plain, SessionOptions{})
	before := Reverted()
	s.how.Store(fails)
	expect(t, "the run that failed", run(t, x, 3, -4), 6, -4)
	expect(t, "after it", run(t, x, 5, -6), 10, -6)
	if Reverted() != before+1 {
		t.Errorf("%d reverted", Reverted()-before)
	}
	active.Patcher = func(Request) (*Patch, error) { return nil, errors.New("a warning") }
	install(t, active)
	expect(t, "unpatched", run(t, session(t, s.plain, SessionOptions{}), 1, -2), 2, -2)
}
