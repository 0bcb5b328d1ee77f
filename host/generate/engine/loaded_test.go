package engine_test

import (
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/session/loaded"
)

// open gives a runtime and the loaded plugins.
func open(t *testing.T) (*ort.Library, *loaded.Set) {
	t.Helper()
	l, err := ort.FindAndOpen("")
	if err != nil {
		t.Fatal(err)
	}
	set, err := loaded.Load(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	return l, set
}
