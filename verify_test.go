package graft_test

import (
	"errors"
	"testing"

	"github.com/opgraft/graft"
)

// TestShadowNeedsAWayBack: with Strict there is none.
func TestShadowNeedsAWayBack(t *testing.T) {
	if err := graft.Enable(graft.Shadow(), graft.Strict()); !errors.Is(err, graft.ErrOption) {
		t.Errorf("got %v, want ErrOption", err)
	}
}
