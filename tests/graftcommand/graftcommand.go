// Package graftcommand gives tests the graft command of this source.
package graftcommand

import (
	"fmt"
	"os"
	"os/exec"
)

// Write writes the command to a file: a copy of the one that GRAFT_TEST_COMMAND names, which make builds once for all
// tests, or else a new one.
func Write(path string) error {
	built := os.Getenv("GRAFT_TEST_COMMAND")
	if built == "" {
		if out, err := exec.Command("go", "build", "-o", path, "github.com/opgraft/graft/cmd/graft").
			CombinedOutput(); err != nil {
			return fmt.Errorf("building the command: %w\n%s", err, out)
		}
		return nil
	}
	data, err := os.ReadFile(built)
	if err != nil {
		return fmt.Errorf("GRAFT_TEST_COMMAND: %w; run make graft, or unset it", err)
	}
	return os.WriteFile(path, data, 0o755)
}
