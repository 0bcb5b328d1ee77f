package generations

import (
	"context"
	"errors"
	"github.com/opgraft/graft/internal/must"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestFootprintOfWhatCrashesOrHangs: native code that ends the process which generates, or never returns, is a message.
func TestFootprintOfWhatCrashesOrHangs(t *testing.T) {
	shell := func(script string) func(context.Context) *exec.Cmd {
		return func(ctx context.Context) *exec.Cmd {
			cmd := exec.CommandContext(ctx, "sh", "-c", script)
			cmd.WaitDelay = time.Second
			return cmd
		}
	}
	for _, c := range []struct {
		script   string
		deadline time.Duration
		want     string
	}{
		{"echo words >&2; kill -SEGV $$", time.Minute,
			"folder: native code ended the process that generated: signal: segmentation fault"},
		{"exec sleep 600", time.Second, "folder: opening it and generating once took more than 1s"},
		{"echo 'graft: the words' >&2; exit 1", time.Minute, "the words"},
		{"exit 1", time.Minute, "the process that measures memory failed: exit status 1"},
		{"echo nothing", time.Minute, "the process that measures memory wrote"},
	} {
		if _, err := (generation{Folder: "folder", Options: Options{Deadline: c.deadline}}).footprint(t.Context(),
			shell(c.script)); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.script, err, c.want)
		}
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (generation{Options: Options{Deadline: time.Minute}}).footprint(over, shell("sleep 600")); !errors.Is(err,
		context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	f, err := (generation{Options: Options{Deadline: time.Minute}}).footprint(t.Context(),
		shell(`echo '{"peak_rss_bytes": 5}'`))
	must.Succeed(t, err, f)
	must.Equal(t, f.PeakRSSBytes, 5, f)
}
