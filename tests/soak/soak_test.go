package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestSoak is the whole of it for seconds: six deaths, and load while files are spoilt.
func TestSoak(t *testing.T) {
	command := filepath.Join(t.TempDir(), "graft")
	if out, err := exec.Command("go", "build", "-o", command, "../../cmd/graft").CombinedOutput(); err != nil {
		t.Fatalf("building the command: %v\n%s", err, out)
	}
	wrong, err := run("../..", command, filepath.Join(t.TempDir(), "result.txt"), 6, 5*time.Second, 1)
	if err != nil || wrong > 0 {
		t.Errorf("%d wrong, %v", wrong, err)
	}
}
