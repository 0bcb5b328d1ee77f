package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestProfileFaults: an operator that crashes, hangs or fails is one error that says what it did and where, with
// nothing printed as data and nothing left behind; without --patched, or without the plugin, the model is profiled.
func TestProfileFaults(t *testing.T) {
	faulty(t)
	for _, c := range []struct {
		name, op string
		args     []string
		code     int
		found    string // of the error
		fix      string
		slow     bool
	}{
		{name: "a crash", op: "Cos", args: []string{"--patched"}, code: exitError, found: "was ended by SIGSEGV",
			fix: "a plugin may have a fault"},
		{name: "a hang", op: "Exp", args: []string{"--patched", "--deadline", "2s"}, code: exitError,
			found: "no answer within 2s", fix: "--deadline", slow: true},
		{name: "an error", op: "Tanh", args: []string{"--patched"}, code: exitError, found: "the test's operator gives up"},
		{name: "a crash, of the model as it is", op: "Cos", code: exitOK},
		{name: "a crash, of a plugin that is not used", op: "Cos", args: []string{"--patched", "--except", "faulty"},
			code: exitOK},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.slow && testing.Short() {
				t.Skip("waits for a deadline")
			}
			path := chain(t, "Relu", c.op)
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			args := []string{"profile", path, "--rounds", "1", "--warmup", "1"}
			if len(c.args) > 0 {
				args = append(args, "--force")
			}
			code, stdout, stderr := graft(append(args, c.args...)...)
			if code != c.code || (stdout == "") != (c.code != exitOK) {
				t.Errorf("exit code %d, %s\n%s", code, stdout, stderr)
			}
			lines := strings.Split(strings.TrimSpace(stderr), "\n")
			if last := lines[len(lines)-1]; c.code != exitOK &&
				(!strings.HasPrefix(last, "graft: "+path) || !strings.Contains(last, c.found) || !strings.Contains(last, c.fix) ||
					strings.Count("\n"+stderr, "\ngraft: ") != 1) {
				t.Errorf("said %q", stderr)
			}
			if left, _ := filepath.Glob(filepath.Join(temp, "*")); len(left) > 0 {
				t.Errorf("left behind: %q", left)
			}
		})
	}
}
