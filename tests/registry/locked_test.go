package registry

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/internal/must"
)

// TestLockedFromRegistry: what a lock names comes from the registry, or from a mirror when that is gone, and nothing
// else under its name: neither by an installation nor by an upgrade.
func TestLockedFromRegistry(t *testing.T) {
	host, stop := startToStop(t)
	s := newShell(t)
	logIn(t, host, "user", password)
	const (
		repository = "team/fused-gelu"
		archive    = "fused-gelu-0.1.0.tar.gz"
	)
	at := "oci://" + host + "/" + repository
	s.graft(0, "plugin", "keygen", "me.key", "--no-password")
	s.graft(0, "plugin", "trust", "add", "me.pub")
	publish := func(folder, version string) { // as that version
		t.Helper()
		s.graft(0, "plugin", "pack", folder)
		s.graft(0, "plugin", "sign", archive, "--key", "me.key")
		must.Value(client(t).Push(t.Context(), filepath.Join(s.folder, archive),
			&manifest.Manifest{Name: "fused-gelu", Version: version}, reference(t, at+":"+version)))(t)
		for _, name := range []string{archive, archive + ".minisig"} {
			must.Succeed(t, os.Rename(filepath.Join(s.folder, name), filepath.Join(s.folder, version+"-"+name)))
		}
	}
	publish(built(t), "0.1.0")
	other := filepath.Join(s.folder, "other")
	must.Succeed(t, os.CopyFS(other, os.DirFS(built(t))))
	write(t, filepath.Join(other, "NOTES.md"), "The same version, with other files.\n")
	publish(other, "0.3.0")
	listed := func() (list []string) {
		t.Helper()
		out, _ := s.graft(0, "plugin", "list", "-o", "json")
		var all struct {
			Plugins []struct{ Name, Version, Key string }
		}
		must.Succeed(t, json.Unmarshal([]byte(out), &all))
		for _, p := range all.Plugins {
			if !strings.HasPrefix(p.Key, "RW") {
				t.Errorf("%s %s has the key %q", p.Name, p.Version, p.Key)
			}
			list = append(list, p.Name+" "+p.Version)
		}
		return list
	}
	holds := func(when string, want ...string) {
		t.Helper()
		must.Equal(t, listed(), want, when)
	}
	refused := func(why string, code int, want string, args ...string) {
		t.Helper()
		if _, talk := s.graft(code, args...); !strings.Contains(talk, want) {
			t.Errorf("%s: %s, want %q", why, talk, want)
		}
	}

	s.graft(0, "plugin", "install", "-q", at+":0.1.0")
	retag(t, host, repository, "0.1.0", "0.2.0")
	refused("an older version as a newer one", 1,
		"graft: "+at+":0.2.0: found fused-gelu 0.1.0, needed the plugin fused-gelu in the version that the tag says",
		"plugin", "upgrade", "-q", "fused-gelu", at+":0.2.0")
	holds("after a refused upgrade", "fused-gelu 0.1.0")
	s.graft(0, "plugin", "lock")
	if lock, err := os.ReadFile(filepath.Join(s.folder, "graft.lock")); err != nil ||
		!strings.Contains(string(lock), "source: "+at+":0.1.0\n") || !strings.Contains(string(lock), "key: RW") {
		t.Errorf("the lock is %s, %v", lock, err)
	}
	s.graft(0, "plugin", "bundle", "bundle")

	s.graft(0, "plugin", "remove", "fused-gelu")
	s.graft(0, "plugin", "install", "-q", "--locked")
	holds("from the registry", "fused-gelu 0.1.0")

	s.graft(0, "plugin", "remove", "fused-gelu")
	retag(t, host, repository, "0.3.0", "0.1.0")
	const differs = "/NOTES.md: found a file that the lock does not name, needed what graft.lock says of fused-gelu 0.1.0"
	refused("other files from the registry", 3, "graft: "+at+":0.1.0"+differs, "plugin", "install", "-q", "--locked")

	stop()
	refused("from a registry that is gone", 1, "graft: "+at+":0.1.0: Get ", "plugin", "install", "-q", "--locked")
	must.Equal(t, s.installed(), "")
	s.graft(0, "plugin", "install", "-q", "--locked", "--mirror", "bundle")
	holds("from a mirror", "fused-gelu 0.1.0")

	s.graft(0, "plugin", "remove", "fused-gelu")
	for _, suffix := range []string{"", ".minisig"} {
		must.Succeed(t, os.Rename(filepath.Join(s.folder, "0.3.0-"+archive+suffix),
			filepath.Join(s.folder, "bundle", archive+suffix)))
	}
	refused("other files from a mirror", 3, "/bundle/"+archive+differs, "plugin", "install", "-q", "--locked", "--mirror",
		"bundle")
	must.Equal(t, s.installed(), "")
}
