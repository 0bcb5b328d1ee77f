package archive

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
)

func TestArchiveLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	plugintest.WriteFile(t, path, plugintest.Tar(t, []plugintest.Entry{{Name: "a", Data: []byte("12345678")}}))
	l := defaultLimits
	l.bytes = 7
	err := unpack(context.Background(), path, t.TempDir(), l)
	want := path + ": found more than 7 bytes of files, needed at most that; leave out what the plugin does not need"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := unpack(ctx, path, t.TempDir(), defaultLimits); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled context: %v", err)
	}
}
