package loaded

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

// TestManyNotVerified: plugins that only have to be verified are one line, with what verifies all of them.
func TestManyNotVerified(t *testing.T) {
	t.Setenv(plugin.UnverifiedVariable, "")
	t.Setenv("XDG_DATA_HOME", t.TempDir())
	t.Setenv("GRAFT_PLUGIN_PATH", "")
	folder := must.Value(filepath.Abs("../../../build/plugins"))(t)
	set, err := Load([]string{folder}, false)
	if !errors.Is(err, refusal.ErrUnverified) || !errors.Is(err, refusal.ErrVerification) || len(set.Refused) != 1 {
		t.Fatalf("%d refusals, error %v; want one of kind ErrUnverified", len(set.Refused), err)
	}
	for _, want := range []string{" plugins that have not been verified here (", "flash-decode, fused-gelu",
		"run: graft doctor --fix --plugins-dir " + folder} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %q", want, err)
		}
	}
	if len(err.Error()) > 400 {
		t.Errorf("%d characters: %v", len(err.Error()), err)
	}
}
