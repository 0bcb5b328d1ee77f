package engine_test

import (
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
	"github.com/opgraft/graft/internal/must"
)

// open gives a runtime and the loaded plugins.
func open(t *testing.T) (*ort.Library, *loaded.Set) {
	t.Helper()
	l := must.Value(ort.FindAndOpen(""))(t)
	set := must.Value(loaded.Load(nil, true))(t)
	return l, set
}
