package hostile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestVerifyOfPluginThatHangsOrCrashes: operators are compared with the model in a child process, so that what they
// do is a message, and nothing is written.
func TestVerifyOfPluginThatHangsOrCrashes(t *testing.T) {
	for op, want := range map[string]string{
		"Cos": `gave no answer within 6s and was ended in a child process (task trial), printing "the trap hangs"; a plugin may hang`,
		"Sin": `was ended by SIGSEGV (segmentation fault) in a child process (task trial), printing "the trap crashes"; a plugin may have a fault`,
		"Tan": `ended the process with exit code 0 in a child process (task trial)`,
	} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple(op)))
			args := []string{"inspect", path, "--force", "--verify"}
			switch op {
			case "Cos":
				args = append(args, "--deadline", "6s")
			case "Tan":
				args = []string{"patch", path, "-o", path + ".patched", "--force", "--verify"}
			}
			code, stdout, stderr := command(t, trapped(), args...)
			if code != 1 || stdout != "" || !strings.Contains(stderr, "graft: "+path+": it "+want) {
				t.Errorf("exit code %d, %q, %q", code, stdout, stderr)
			}
			if _, err := os.Stat(path + ".patched"); err == nil {
				t.Error("a file was written")
			}
		})
	}
}

// TestVerifyLeavesOut: what answers otherwise than the model, or fails, is left out with the reason.
func TestVerifyLeavesOut(t *testing.T) {
	for op, want := range map[string]string{"Abs": "output y: 4 of 4 elements are NaN or infinite on one side and not " +
		"on the other", "Neg": "the trap cannot run"} {
		path := write(t, filepath.Join(t.TempDir(), "model.onnx"), encode(t, simple(op)))
		code, stdout, stderr := command(t, trapped(), "inspect", path, "--force", "--verify")
		if code != 5 || !strings.Contains(stdout, "left out: 1 of them, which answer otherwise than the model\n") ||
			!strings.Contains(stdout, "  left out: ") ||
			!strings.Contains(stdout, want) || !strings.Contains(stderr, path+": the answers differ: left out: 1 block; ") {
			t.Errorf("inspect: exit code %d, %q, %q, want %q", code, stdout, stderr, want)
		}
		if code, stdout, _ = command(t, trapped(), "inspect", path, "--force", "--verify", "-o", "json"); code != 5 ||
			!strings.Contains(stdout, `"left_out": `) || strings.Contains(stdout, `"verified"`) {
			t.Errorf("inspect as JSON: exit code %d, %q", code, stdout)
		}
		code, stdout, stderr = command(t, trapped(), "patch", path, "--force", "--verify", "-o", path+".patched")
		if code != 1 || stdout != "" ||
			!strings.Contains(stderr, "graft: left out, because it answers otherwise than the model: ") ||
			!strings.Contains(stderr, "nothing written: 1 because ") {
			t.Errorf("patch: exit code %d, %q, %q", code, stdout, stderr)
		}
	}
}
