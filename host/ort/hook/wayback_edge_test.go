package hook

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/host/ort/internal/slot"
	"github.com/opgraft/graft/host/ort/session"
	"github.com/opgraft/graft/internal/must"
)

// TestUninstallWhileASessionIsMade: a session that is made while the hook goes has no way back, since nobody sees its
// runs and its end: the next session at its address would have it.
func TestUninstallWhileASessionIsMade(t *testing.T) {
	s := stage(t, false)
	at := library.API() + uintptr(slot.DisableProfiling)*cmem.WordSize // called when what the program gave is remembered
	own := library.Function(slot.DisableProfiling)
	instead := purego.NewCallback(func(options uintptr) uintptr {
		if err := Uninstall(library); err != nil {
			t.Error(err)
		}
		status, _, _ := purego.SyscallN(own, options)
		return status
	})
	must.Succeed(t, replaceWord(at, own, instead))
	x := orttest.Session(t, s.plain, session.Options{})
	must.Succeed(t, replaceWord(at, instead, own))
	if !hookOf.Of(library).backs.none() || s.closed != 1 {
		t.Errorf("a way back that is never used; the plain model was released %d times", s.closed)
	}
	orttest.Expect(t, "patched", orttest.Run(t, x, 1, -2), 2, -2)
}

// panicking is a program's log that panics.
type panicking struct{ slog.Handler }

func (panicking) Enabled(context.Context, slog.Level) bool { return true }

func (panicking) Handle(context.Context, slog.Record) error { panic("no log") }

// TestLogThatPanics: on the threads of a program that calls ONNX Runtime nothing panics, and a line that is lost
// changes no answer.
func TestLogThatPanics(t *testing.T) {
	s := stage(t, false)
	active := *Installed(library)
	active.Logger = slog.New(panicking{slog.DiscardHandler})
	install(t, active)
	x := orttest.Session(t, s.plain, session.Options{})
	before := Reverted()
	s.how.Store(fails)
	orttest.Expect(t, "the run that failed", orttest.Run(t, x, 3, -4), 6, -4)
	orttest.Expect(t, "after it", orttest.Run(t, x, 5, -6), 10, -6)
	must.Equal(t, Reverted(), before+1, Reverted()-before)
	active.Patcher = func(session.Request) (*session.Patch, error) { return nil, errors.New("a warning") }
	install(t, active)
	orttest.Expect(t, "unpatched", orttest.Run(t, orttest.Session(t, s.plain, session.Options{}), 1, -2), 2, -2)
}
