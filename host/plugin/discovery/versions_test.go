package discovery

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// TestVersions: which folder a link of a store means, and which link a folder has.
func TestVersions(t *testing.T) {
	plugins, outside := t.TempDir(), t.TempDir()
	at := func(parts ...string) string { return filepath.Join(append([]string{plugins}, parts...)...) }
	var err error
	for _, v := range []string{"1.0.0-a", "2.0.0-b"} {
		err = errors.Join(err, os.MkdirAll(at(VersionsFolder, "toy", v), 0o755),
			os.WriteFile(at(VersionsFolder, "toy", v, "plugin.yaml"), nil, 0o644))
	}
	must.Succeed(t, errors.Join(err, os.Mkdir(at("plain"), 0o755), os.Symlink(outside, at("mine")),
		os.Symlink(VersionsFolder+"/toy/../../../x", at("out")),
		os.Symlink(VersionsFolder+"/toy/2.0.0-b", at("toy")), os.Symlink(VersionsFolder+"/toy/2.0.0-b", at("other"))))
	for link, want := range map[string]string{
		at("toy"): at(VersionsFolder, "toy", "2.0.0-b"), at("plain"): at("plain"), at("none"): at("none"),
		at("mine"): at("mine"), at("out"): at("out"), at("other"): at("other"), // not of the store
	} {
		must.Equal(t, Current(link), want, link)
	}
	for folder, want := range map[string]string{at(VersionsFolder, "toy", "2.0.0-b"): at("toy"),
		at(VersionsFolder, "toy", "1.0.0-a"): at(VersionsFolder, "toy", "1.0.0-a"), at("plain"): at("plain"), "/": "/"} {
		must.Equal(t, Linked(folder), want, folder)
	}
	if got := Versions(plugins, "toy"); len(got) != 2 || got[0] != at(VersionsFolder, "toy", "1.0.0-a") {
		t.Errorf("versions are %v", got)
	}
	must.Empty(t, Versions(plugins, "none"))
}
