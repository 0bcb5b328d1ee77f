package archive

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/internal/must"
)

// FuzzArchive unpacks archives: nothing may appear outside, and nothing but files and folders inside.
func FuzzArchive(f *testing.F) {
	entries := []plugintest.Entry{{Name: "a/", Kind: '5'}, {Name: "a/plugin.yaml", Data: []byte("x")},
		{Name: "../b", Data: []byte("y")}, {Name: "c", Kind: '2', Link: "/etc"}}
	f.Add(plugintest.Tar(f, entries), ".tar")
	f.Add(plugintest.Gzip(f, plugintest.Tar(f, entries[:2])), ".tar.gz")
	f.Fuzz(func(t *testing.T, data []byte, kind string) {
		if !slices.Contains([]string{".tar", ".tar.gz"}, kind) {
			return
		}
		outer := t.TempDir()
		inner := filepath.Join(outer, "in", "side")
		must.Succeed(t, os.MkdirAll(inner, 0o755))
		path := filepath.Join(outer, "x"+kind)
		plugintest.WriteFile(t, path, data)
		l := defaultLimits
		l.bytes, l.files = 1<<20, 64
		must.CostLittle(t, len(data), func() { _ = unpack(context.Background(), path, inner, l) })
		var total int64
		err := filepath.WalkDir(outer, func(at string, e os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if !e.IsDir() && !e.Type().IsRegular() {
				t.Errorf("found a %s at %s", storage.Kind(e.Type()), at)
			}
			if !e.IsDir() && at != path {
				if !strings.HasPrefix(at, inner+"/") {
					t.Errorf("found %s outside", at)
				}
				if info, err := e.Info(); err == nil {
					total += info.Size()
				}
			}
			return nil
		})
		if err != nil || total > l.bytes {
			t.Errorf("%d bytes unpacked, %v; want at most %d", total, err, l.bytes)
		}
	})
}
