package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/distribute/signing"
	authors "github.com/opgraft/graft/host/distribute/signing/signingtest"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/lockfile"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/internal/must"
)

// TestLockedSignatures: a lock that names no key is word enough for what nobody signed, where it did not come with
// it; one that names a key wants the signature of that key, of what the store holds too.
func TestLockedSignatures(t *testing.T) {
	plugintest.Places(t)
	from := toys(t, "0.1.0")
	author, other := authors.New(t), authors.New(t)
	mirror := func(by *authors.Author) string {
		folder := t.TempDir()
		path := filepath.Join(folder, "toy-0.1.0.tar.gz")
		plugintest.WriteTarGz(t, path, plugintest.Entries(t, from["0.1.0"], "toy/"))
		if by != nil {
			by.Sign(t, path, "toy", "0.1.0")
		}
		return folder
	}
	unsigned, signed, another := mirror(nil), mirror(author), mirror(other)
	plain := filepath.Join(t.TempDir(), "plain")
	must.Succeed(t, os.MkdirAll(filepath.Join(plain, "toy-0.1.0"), 0o755))
	for _, e := range plugintest.Entries(t, from["0.1.0"], "toy-0.1.0/") {
		plugintest.WriteFile(t, filepath.Join(plain, e.Name), e.Data)
	}
	packed := filepath.Join(t.TempDir(), "packed.tar.gz") // a mirror of one folder
	plugintest.WriteTarGz(t, packed, plugintest.Entries(t, from["0.1.0"], "mirror/toy-0.1.0/"))
	key := author.Key.String()
	const (
		fix  = "; ask its author for it, or install it unchecked: add --allow-unsigned"
		came = ", needed that of a trusted key, as the lock came with it" + fix
	)
	names := ", needed the archive of toy 0.1.0 with the signature of the key " + key + ", as LOCK says" + fix
	for _, test := range []struct {
		name    string
		before  string // what the store holds: "a folder", "an unsigned archive" or ""
		mirror  string
		key     string // in the lock
		came    bool   // with the mirror
		allowed bool   // unsigned ones
		record  string // the key that is recorded
		already bool
		kind    error
		refusal string
	}{
		{name: "an unsigned one by a lock of one's own", mirror: unsigned},
		{name: "an unsigned one by a lock that came with it", mirror: unsigned, came: true, kind: signing.ErrUntrusted,
			refusal: "MIRROR/toy-0.1.0.tar.gz: found no signature beside it" + came},
		{name: "an unsigned one by a lock that came with it, which is accepted", mirror: unsigned, came: true, allowed: true},
		{name: "packed again, by a lock that names a key", mirror: unsigned, key: key, kind: signing.ErrUntrusted,
			refusal: "MIRROR/toy-0.1.0.tar.gz: found no signature beside it" + names},
		{name: "packed again, by a lock that names a key, which is accepted", mirror: unsigned, key: key, allowed: true},
		{name: "a signed one", mirror: signed, key: key, record: key},
		{name: "a signed one by a lock that came with it", mirror: signed, key: key, came: true, record: key},
		{name: "a signed one by a lock that names no key", mirror: signed, record: key},
		{name: "another's", mirror: another, key: key, kind: refusal.ErrLock,
			refusal: "MIRROR/toy-0.1.0.tar.gz: found the signature of the key " + other.Key.String() +
				", needed that of the key " + key +
				", as LOCK says of toy 0.1.0; do not install it; ask who published it, or write the lock again where the change " +
				"is meant"},
		{name: "a folder by a lock of one's own", mirror: plain},
		{name: "a folder by a lock that came with it", mirror: plain, came: true, kind: signing.ErrUntrusted,
			refusal: "MIRROR/toy-0.1.0: found a folder, which nobody signed" + came},
		{name: "a folder in an archive by a lock that came with it", mirror: packed, came: true, kind: signing.ErrUntrusted,
			refusal: "MIRROR/toy-0.1.0: found a folder, which nobody signed" + came},
		{name: "a folder by a lock that names a key", mirror: plain, key: key, kind: signing.ErrUntrusted,
			refusal: "MIRROR/toy-0.1.0: found a folder, which nobody signed" + names},
		{name: "what is there unsigned", before: "an unsigned archive", mirror: signed, key: key, record: key, already: true},
		{name: "what was a folder", before: "a folder", mirror: signed, key: key, record: key, already: true},
		{name: "what is there unsigned, and in the mirror too", before: "an unsigned archive", mirror: unsigned, key: key,
			kind: signing.ErrUntrusted, refusal: "MIRROR/toy-0.1.0.tar.gz: found no signature beside it" + names},
		{name: "what is there unsigned, which is accepted", before: "an unsigned archive", mirror: "none", key: key,
			allowed: true, already: true},
		{name: "what is there unsigned, by a lock that names no key", before: "an unsigned archive", mirror: "none",
			already: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			data := t.TempDir()
			s := At(data)
			author.Trust(t, data)
			other.Trust(t, data)
			switch test.before {
			case "a folder":
				must.Succeed(t, do(t, s, from, "install 0.1.0"))
			case "an unsigned archive":
				must.Value(s.Install(t.Context(), filepath.Join(unsigned, "toy-0.1.0.tar.gz"),
					verification.Options{AllowUnsigned: true, Search: discovery.Options{Only: true}}))(t)
			}
			lock := lockfile.New(filepath.Join(t.TempDir(), "graft.lock"))
			entry, err := s.Locked(from["0.1.0"])
			must.Succeed(t, err)
			entry.Key, entry.Source = test.key, "oci://registry/toy:0.1.0"
			lock.Set(entry)
			sources := Sources{Unsigned: !test.came}
			if test.mirror != "none" {
				if sources.Mirror, err = OpenMirror(t.Context(), test.mirror); err != nil {
					t.Fatal(err)
				}
				defer sources.Mirror.Close()
			}
			done, err := s.InstallLocked(t.Context(), lock, sources, verification.Options{AllowUnsigned: test.allowed})
			if test.refusal != "" {
				want := strings.NewReplacer("MIRROR", test.mirror, "LOCK", lock.Path()).Replace(test.refusal)
				must.FailExactly(t, err, want, test.kind)
				must.Equal(t, shelf(t, s), map[bool]string{true: "", false: "0.1.0"}[test.before == ""])
				return
			}
			if err != nil || len(done) != 1 || done[0].Key != test.record || done[0].Already != test.already {
				t.Fatalf("%+v, %v", done, err)
			}
			if list, err := s.List(); err != nil || len(list) != 1 || list[0].Key != test.record ||
				list[0].Unsigned != done[0].Unsigned {
				t.Errorf("the list has %+v, %v; want the key %q", list, err, test.record)
			}
		})
	}
}

// TestInstalledAgain: what comes again is recorded as it came the last time, though its files are there already.
func TestInstalledAgain(t *testing.T) {
	plugintest.Places(t)
	from, author, data := toys(t, "0.1.0"), authors.New(t), t.TempDir()
	s := At(data)
	author.Trust(t, data)
	unsigned, signed := filepath.Join(t.TempDir(), "toy.tar.gz"), filepath.Join(t.TempDir(), "toy.tar.gz")
	for _, path := range []string{unsigned, signed} {
		plugintest.WriteTarGz(t, path, plugintest.Entries(t, from["0.1.0"], "toy/"))
	}
	author.Sign(t, signed, "toy", "0.1.0")
	for i, step := range []struct {
		path, key string
		unsigned  bool
	}{
		{unsigned, "", true}, {signed, author.Key.String(), false}, {signed, author.Key.String(), false},
		{from["0.1.0"], "", false}, {signed, author.Key.String(), false}, {unsigned, "", true},
	} {
		in, err := s.Install(t.Context(), step.path,
			verification.Options{AllowUnsigned: step.unsigned, Replace: "toy", Search: discovery.Options{Only: true}})
		if err != nil || in.Already != (i > 0) {
			t.Fatalf("step %d: %+v, %v", i, in, err)
		}
		if list, err := s.List(); err != nil || len(list) != 1 || list[0].Key != step.key ||
			list[0].Unsigned != step.unsigned || list[0].Source != step.path {
			t.Errorf("step %d: the list has %+v, %v", i, list, err)
		}
	}
}
