package ort

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

const markTelemetry = "GRAFT_TEST_TELEMETRY"

// TestTelemetryIsOff: an environment that graft makes leaves nothing in the temporary folder, where ONNX Runtime's
// telemetry has its files.
func TestTelemetryIsOff(t *testing.T) {
	if os.Getenv(markTelemetry) != "" {
		must.Value(library.Environment())(t)
		return
	}
	folder := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestTelemetryIsOff$")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(s string) bool { return strings.HasPrefix(s, EnvTelemetry+"=") })
	cmd.Env = append(cmd.Env, markTelemetry+"=1", "TMPDIR="+folder)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	entries := must.Value(os.ReadDir(folder))(t)
	for _, e := range entries {
		t.Errorf("the temporary folder holds %s", e.Name())
	}
}
