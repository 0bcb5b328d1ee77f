package store

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/internal/must"
)

// lockOf writes a lock of what a store has as the current version of the fixture.
func lockOf(t *testing.T, s *Store, path string) *lockfile.File {
	t.Helper()
	entry := must.Value(s.LockedCurrent("toy"))(t)
	lock := lockfile.New(path)
	entry.Source = lock.Relative(entry.Source)
	lock.Set(entry)
	must.Succeed(t, lock.Write())
	return lock
}

// TestInstallLocked: a store on another machine gets what the lock names, from its source or from a mirror, and
// nothing else.
func TestInstallLocked(t *testing.T) {
	plugintest.Places(t)
	from := toys(t, "0.1.0", "0.2.0")
	here, top := At(t.TempDir()), t.TempDir()
	for _, step := range []string{"install 0.1.0", "upgrade 0.2.0"} {
		must.Succeed(t, do(t, here, from, step))
	}
	lock := lockOf(t, here, filepath.Join(top, "graft.lock"))
	noFetch := func(_ context.Context, source, _ string) (string, error) {
		t.Errorf("%s was asked", source)
		return "", errors.New("no network")
	}
	folder, file := filepath.Join(top, "bundle"), filepath.Join(top, "bundle.tar.gz")
	for _, to := range []string{folder, file} {
		done, err := here.Bundle(t.Context(), lock, to, noFetch, discovery.Options{Only: true})
		if err != nil || done.Path != to || !slices.Equal(done.Plugins, []string{"toy-0.2.0.tar.gz"}) ||
			len(done.Repacked) > 0 {
			t.Fatalf("%+v, %v", done, err)
		}
	}
	plain := filepath.Join(top, "plain") // a folder of plugins' folders is a mirror too
	must.Succeed(t, os.MkdirAll(plain, 0o755))
	for version, source := range from {
		plugintest.Write(t, filepath.Join(plain, "toy-"+version), "", "")
		for _, e := range plugintest.Entries(t, source, "") {
			plugintest.WriteFile(t, filepath.Join(plain, "toy-"+version, e.Name), e.Data)
		}
	}
	archived := filepath.Join(top, "fetched.tar.gz")
	plugintest.WriteTarGz(t, archived, plugintest.Entries(t, from["0.2.0"], "toy/"))
	older := filepath.Join(top, "older")
	other := filepath.Join(top, "other")
	for path, source := range map[string]string{older: from["0.1.0"],
		other: plugintest.Versioned(t, filepath.Join(t.TempDir(), "x"), "0.2.0", "-O2")} {
		must.Succeed(t, os.Mkdir(path, 0o755))
		plugintest.WriteTarGz(t, filepath.Join(path, "toy-0.2.0.tar.gz"), plugintest.Entries(t, source, ""))
	}
	const fix = "; do not install it; ask who published it, or write the lock again where the change is meant"
	for _, test := range []struct {
		name, before string // steps in the store before
		mirror       string
		source       string // in place of that of the lock
		want         string // the store holds afterwards
		already      bool
		refusal      string
	}{
		{name: "its source", want: "0.2.0"},
		{name: "an address", source: "oci://registry/toy:0.2.0", want: "0.2.0"},
		{name: "a bundle", mirror: folder, source: "oci://registry/toy:0.2.0", want: "0.2.0"},
		{name: "an archive of a bundle", mirror: file, source: "/nowhere", want: "0.2.0"},
		{name: "a folder of plugins", mirror: plain, source: "/nowhere", want: "0.2.0"},
		{name: "beside another version", before: "install 0.1.0", mirror: folder, want: "0.2.0 (0.1.0)"},
		{name: "what is there", before: "install 0.2.0", mirror: plain, source: "/nowhere", want: "0.2.0", already: true},
		{name: "what is retained", before: "install 0.1.0, upgrade 0.2.0, rollback", source: "/nowhere",
			want: "0.2.0 (0.1.0)"},
		{name: "no source", before: "install 0.1.0", source: "none", want: "0.1.0",
			refusal: lock.Path() + ": found no source of toy 0.2.0, which is not installed, needed a source, or a folder " +
				"that holds it; name the folder with --mirror"},
		{name: "an empty mirror", mirror: t.TempDir(),
			refusal: "MIRROR: found no archive and no folder of toy 0.2.0, needed toy-0.2.0.tar.gz; run graft plugin bundle " +
				"where it is installed"},
		{name: "an older version under the name", before: "install 0.1.0", mirror: older, want: "0.1.0",
			refusal: "MIRROR/toy-0.2.0.tar.gz: found toy 0.1.0, needed toy 0.2.0 as " + lock.Path() + " says" + fix},
		{name: "an older version at the source", source: from["0.1.0"],
			refusal: from["0.1.0"] + ": found toy 0.1.0, needed toy 0.2.0 as " + lock.Path() + " says" + fix},
		{name: "other files", before: "install 0.1.0", mirror: other, want: "0.1.0",
			refusal: "MIRROR/toy-0.2.0.tar.gz/libtoy.so: found sha256 "},
		{name: "no mirror", mirror: "/nowhere",
			refusal: "/nowhere: cannot read: no such file or directory, needed a folder of plugins' archives, or an archive " +
				"of one"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := At(t.TempDir())
			for step := range strings.SplitSeq(test.before, ", ") {
				if step == "" {
					continue
				}
				must.Succeed(t, do(t, s, from, step))
			}
			l := lockfile.New(lock.Path())
			entry := lock.Plugins[0]
			switch test.source {
			case "":
			case "none":
				entry.Source = ""
			default:
				entry.Source = test.source
			}
			l.Set(entry)
			sources := Sources{Fetch: noFetch, Unsigned: true}
			if strings.Contains(test.source, "://") && test.mirror == "" {
				sources.Fetch = func(context.Context, string, string) (string, error) { return archived, nil }
			}
			var err error
			if test.mirror != "" {
				sources.Mirror, err = OpenMirror(t.Context(), test.mirror)
			}
			var done []*Installation
			if err == nil {
				done, err = s.InstallLocked(t.Context(), l, sources, verification.Options{})
			}
			if test.refusal != "" {
				want := strings.ReplaceAll(test.refusal, "MIRROR", test.mirror)
				if err == nil || !strings.HasPrefix(err.Error(), want) {
					t.Errorf("error\n%v\nwant\n%s", err, want)
				}
			} else if err != nil || len(done) != 1 || done[0].Already != test.already || done[0].Version != "0.2.0" {
				t.Errorf("%+v, %v", done, err)
			}
			must.Equal(t, shelf(t, s), test.want)
			if test.refusal == "" && !test.already && !strings.Contains(test.before, "upgrade") {
				if again, err := s.LockedCurrent("toy"); err != nil || again.Source != l.Resolve(entry.Source) ||
					!again.Equal(&entry) {
					t.Errorf("a lock of it says %+v, %v", again, err)
				}
			}
			if sources.Mirror != nil {
				must.Succeed(t, sources.Mirror.Close())
			}
		})
	}
}

// TestInstallLockedAll: where one of several plugins is refused, none is installed.
func TestInstallLockedAll(t *testing.T) {
	plugintest.Places(t)
	s, top := At(t.TempDir()), t.TempDir()
	must.Succeed(t, do(t, s, toys(t, "0.1.0"), "install 0.1.0"))
	lock := lockOf(t, s, filepath.Join(top, "graft.lock"))
	other := lock.Plugins[0]
	other.Name, other.Source = "zoo", ""
	lock.Set(other)
	must.Succeed(t, lock.Write())
	empty := At(t.TempDir())
	if _, err := empty.InstallLocked(t.Context(), lock, Sources{Unsigned: true}, verification.Options{}); !errors.Is(err,
		refusal.ErrNotFound) {
		t.Errorf("error %v, want one for zoo", err)
	}
	must.Equal(t, shelf(t, empty), "")
	to := filepath.Join(top, "bundle")
	if _, err := s.Bundle(t.Context(), lock, to, nil, discovery.Options{Only: true}); !errors.Is(err, refusal.ErrLock) ||
		!strings.Contains(err.Error(), "found zoo 0.1.0 neither installed as it says nor at its source") {
		t.Errorf("a bundle: %v", err)
	}
	must.Equal(t, len(must.Value(os.ReadDir(top))(t)), 1)
	must.Succeed(t, os.MkdirAll(filepath.Join(to, "x"), 0o755))
	if _, err := s.Bundle(t.Context(), lock, to, nil, discovery.Options{Only: true}); err == nil ||
		err.Error() != to+": found something there, needed a new or an empty folder; name another, or remove it" {
		t.Errorf("a bundle over something: %v", err)
	}
}

// TestBundleOfArchives: an archive that a plugin was installed from is taken over to the byte, with its signature;
// another in its place is not.
func TestBundleOfArchives(t *testing.T) {
	plugintest.Places(t)
	s, top := At(t.TempDir()), t.TempDir()
	path := filepath.Join(top, "mine.tgz")
	from := toys(t, "0.1.0", "0.2.0")
	packed := plugintest.Gzip(t, plugintest.Tar(t, plugintest.Entries(t, from["0.1.0"], "toy/")))
	plugintest.WriteFile(t, path, packed)
	must.Value(s.Install(t.Context(), path, verification.Options{AllowUnsigned: true}))(t)
	plugintest.WriteFile(t, path+signing.Suffix, []byte("signed"))
	lock := lockOf(t, s, filepath.Join(top, "graft.lock"))
	must.Equal(t, lock.Plugins[0].Source, "./mine.tgz")
	to := filepath.Join(top, "a")
	must.Value(s.Bundle(t.Context(), lock, to, nil, discovery.Options{Only: true}))(t)
	must.Equal(t, string(plugintest.ReadFile(t, filepath.Join(to, "toy-0.1.0.tgz"))), string(packed))
	if got := plugintest.ReadFile(t, filepath.Join(to, "toy-0.1.0.tgz"+signing.Suffix)); string(got) != "signed" {
		t.Errorf("the signature is %q", got)
	}
	plugintest.WriteTarGz(t, path, plugintest.Entries(t, from["0.2.0"], ""))
	lock.Plugins[0].Key = "a key"
	must.Succeed(t, lock.Write())
	done, err := s.Bundle(t.Context(), lock, filepath.Join(top, "b"), nil, discovery.Options{Only: true})
	must.Succeed(t, err)
	must.Equal(t, done.Repacked, []string{"toy-0.1.0" + archive.Suffix})
}
