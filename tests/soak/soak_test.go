package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/opgraft/graft/internal/must"
	"github.com/opgraft/graft/tests/graftcommand"
)

// TestSoak is the whole of it for seconds: six deaths, and load while files are spoilt.
func TestSoak(t *testing.T) {
	command := filepath.Join(t.TempDir(), "graft")
	must.Succeed(t, graftcommand.Write(command))
	wrong, err := run("../..", command, filepath.Join(t.TempDir(), "result.txt"), 6, 5*time.Second, 1)
	if err != nil || wrong > 0 {
		t.Errorf("%d wrong, %v", wrong, err)
	}
}
