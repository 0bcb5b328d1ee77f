package session_test

import (
	"testing"

	"github.com/opgraft/graft/host/ort/hook"
	"github.com/opgraft/graft/host/ort/internal/orttest"
	"github.com/opgraft/graft/internal/must"
)

// library is the runtime that all tests run on.
var library = orttest.Library()

// install puts a hook before other bindings for as long as the test runs.
func install(t testing.TB, h hook.Hook) {
	t.Helper()
	must.Succeed(t, hook.Install(library, h))
	t.Cleanup(func() { must.Succeed(t, hook.Uninstall(library)) })
}
