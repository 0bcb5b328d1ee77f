package engine_test

import (
	"testing"

	"github.com/opgraft/graft/host/ort"
	"github.com/opgraft/graft/host/patch"
)

// loaded is a runtime and the plugins at hand.
func loaded(t *testing.T) (*ort.Library, *patch.Set) {
	t.Helper()
	l, err := ort.FindAndOpen("")
	if err != nil {
		t.Fatal(err)
	}
	set, err := patch.Load(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	return l, set
}
