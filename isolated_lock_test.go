package graft_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	onnx "github.com/yalue/onnxruntime_go"

	"github.com/opgraft/graft"
	"github.com/opgraft/graft/internal/must"
)

// isolatedCalls are those that workers have answered in this process.
func isolatedCalls() (n int64) {
	for _, i := range graft.IsolatedPlugins() {
		n += i.Calls
	}
	return n
}

// isolate adds the session config entry graft.isolate.
func isolate(t *testing.T, o *onnx.SessionOptions, names string) *onnx.SessionOptions {
	t.Helper()
	must.Succeed(t, o.AddSessionConfigEntry(graft.ConfigIsolate, names))
	return o
}

// TestLockWithIsolation: an isolated plugin is the one of the lock, whether the program or a session says either, and
// one that differs is refused.
func TestLockWithIsolation(t *testing.T) {
	environment(t)
	d := signature(t, tiny)
	unpatched := d.answers(t, tiny, nil)
	plugins := filepath.Join(os.Getenv("XDG_DATA_HOME"), "graft", "plugins")
	gelu := edition(t, "fused-gelu", filepath.Join(plugins, "fused-gelu"), "")
	flash := edition(t, "flash-decode", filepath.Join(plugins, "flash-decode"), "")
	other := edition(t, "fused-gelu", filepath.Join(t.TempDir(), "other"), "# another\n")

	var log record
	enabled := func(lock, isolated string) error {
		return graft.EnableWith(graft.Options{Common: graft.Common{Lock: lock, AcceptUnverified: true, Force: true},
			Logger: log.logger(), Isolation: graft.Isolation{Plugins: strings.Fields(isolated)}})
	}
	// patched runs a session of the lock's plugin, whose operators a worker runs.
	patched := func(o *onnx.SessionOptions) {
		t.Helper()
		before := isolatedCalls()
		same(t, d.answers(t, tiny, o), unpatched)
		log.expect(t, 5, "fused-gelu")
		if isolatedCalls() == before {
			t.Error("no worker answered")
		}
	}
	must.Succeed(t, enabled(lockOf(t, gelu), "fused-gelu"))
	patched(nil)
	patched(locked(t, lockOf(t, gelu)))
	must.Equal(t, d.answers(t, tiny, locked(t, lockOf(t, other))), unpatched)
	if list := log.take(t); len(list) != 1 ||
		!strings.Contains(list[0].Reason, "session config entry graft.lock: "+gelu+"/plugin.yaml: found sha256 ") {
		t.Errorf("the log says %+v", list)
	}
	for _, test := range []struct {
		lock, isolated, want string
		kind                 error
	}{
		{lockOf(t, other), "fused-gelu", "another fused-gelu 0.1.0: " + gelu + "/plugin.yaml: sha256 ", graft.ErrBadPlugin},
		{lockOf(t, gelu), "flash-decode", `no plugin "flash-decode" is loaded, found fused-gelu`, graft.ErrNoPlugin},
	} {
		must.Fail(t, enabled(test.lock, test.isolated), test.kind, test.want)
	}

	must.Succeed(t, graft.Disable())
	must.Succeed(t, enabled("", ""))
	patched(isolate(t, locked(t, lockOf(t, gelu)), "fused-gelu"))
	both := isolatedCalls()
	same(t, d.answers(t, tiny, isolate(t, locked(t, lockOf(t, flash)), "fused-gelu")), unpatched)
	log.expect(t, 5, "flash-decode")
	must.Equal(t, isolatedCalls(), both)
	for lock, want := range map[string]string{
		lockOf(t, other): "session config entry graft.lock: " + gelu + "/plugin.yaml: found sha256 ",
		lockOf(t, gelu):  `session config entry graft.isolate: no plugin "nothing" is loaded`,
	} {
		name := "fused-gelu"
		if strings.Contains(want, "nothing") {
			name = "nothing"
		}
		must.Equal(t, d.answers(t, tiny, isolate(t, locked(t, lock), name)), unpatched)
		if list := log.take(t); len(list) != 1 || list[0].Level != "WARN" || !strings.Contains(list[0].Reason, want) {
			t.Errorf("the log says %+v, want one warning with %q", list, want)
		}
	}
}
