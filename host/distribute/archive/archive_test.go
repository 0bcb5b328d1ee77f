package archive

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
)

func TestArchiveLimits(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tar")
	plugintest.WriteFile(t, path, plugintest.Tar(t, []plugintest.Entry{{Name: "a", Data: []byte("12345678")}}))
	l := defaultLimits
	l.bytes = 7
	err := unpack(context.Background(), path, t.TempDir(), l)
	want := path + ": found more than 7 bytes of files, needed at most that; leave out what the plugin does not need"
	must.FailExactly(t, err, want)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	must.Fail(t, unpack(ctx, path, t.TempDir(), defaultLimits), context.Canceled)
}
