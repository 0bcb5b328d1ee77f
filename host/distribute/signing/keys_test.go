package signing

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

// own copies a file of testdata to one that only this user reads.
func own(t *testing.T, name string) string {
	t.Helper()
	return written(t, string(read(t, filepath.Join("testdata", name))))
}

func written(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	must.Succeed(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data := must.Value(os.ReadFile(path))(t)
	return data
}

func pair(t *testing.T) (PrivateKey, PublicKey) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.key")
	public := must.Value(Generate(path, path+".pub", nil))(t)
	private := must.Value(ReadPrivate(path, nil))(t)
	return private, public
}

// A pair is two files: one for its owner alone, and one that says the same as minisign's.
func TestGenerate(t *testing.T) {
	folder := t.TempDir()
	private, public := filepath.Join(folder, "me.key"), filepath.Join(folder, "me.pub")
	k := must.Value(Generate(private, public, nil))(t)
	must.Equal(t, must.Value(os.Stat(private))(t).Mode().Perm(), 0o600)
	must.Equal(t, string(read(t, public)), "untrusted comment: minisign public key "+k.ID()+"\n"+k.String()+"\n")
	for _, text := range []string{public, k.String()} {
		if again, err := ReadPublic(text); err != nil || again.String() != k.String() {
			t.Errorf("%s: %v, %v", text, again, err)
		}
	}
	again, err := ReadPrivate(private, nil)
	must.Succeed(t, err, again.Public())
	must.Equal(t, again.Public().String(), k.String(), again.Public())
	// What is there is never written over: neither half.
	for _, path := range []string{private, public} {
		was := string(read(t, path))
		other := filepath.Join(folder, "other")
		if _, err := Generate(private, other, nil); path == private && !errors.Is(err, ErrKey) {
			t.Errorf("over a private key: %v", err)
		}
		if _, err := Generate(other, public, nil); path == public && !errors.Is(err, ErrKey) {
			t.Errorf("over a public key: %v", err)
		}
		must.Equal(t, string(read(t, path)), was, path)
		must.Fail(t, must.Error(os.Stat(other)), fs.ErrNotExist)
	}
	stop := errors.New("stop")
	must.Fail(t, must.Error(Generate(filepath.Join(folder, "no.key"), filepath.Join(folder, "no.pub"),
		func() (string, error) { return "", stop })), stop)
	if _, err := Generate(filepath.Join(folder, "none", "no.key"), filepath.Join(folder, "no.pub"), nil); !errors.Is(err,
		ErrKey) {
		t.Errorf("in a folder that is not there: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, "*no*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
}

// Keys of minisign 0.11 are keys here.
func TestKeysOfMinisign(t *testing.T) {
	public, err := ReadPublic(filepath.Join("testdata", "minisign.pub"))
	if err != nil || public.ID() != "0837F8E8AC29FE7A" {
		t.Fatalf("%v, %v", public.ID(), err)
	}
	private, err := ReadPrivate(own(t, "minisign.key"), nil)
	must.Succeed(t, err, private.Public())
	must.Equal(t, private.Public().String(), public.String(), private.Public())
}

// A password protects a key, here and in minisign. What derives a key from it takes a gigabyte and a second.
func TestPasswords(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of a processor")
	}
	word := func(text string) func() (string, error) { return func() (string, error) { return text, nil } }
	public := must.Value(ReadPublic(filepath.Join("testdata", "protected.pub")))(t)
	private, err := ReadPrivate(own(t, "protected.key"), word("graft"))
	must.Succeed(t, err, private.Public())
	must.Equal(t, private.Public().String(), public.String(), private.Public())
	if _, err := ReadPrivate(own(t, "protected.key"), word("Graft")); !errors.Is(err, ErrKey) ||
		!strings.Contains(err.Error(), "found another password, or a damaged key") {
		t.Errorf("another password: %v", err)
	}
	path := filepath.Join(t.TempDir(), "a.key")
	made := must.Value(Generate(path, path+".pub", word("pass word")))(t)
	if k, err := ReadPrivate(path, word("pass word")); err != nil || k.Public().String() != made.String() {
		t.Errorf("graft's: %v, %v", k.Public(), err)
	}
	if strings.Contains(string(read(t, path)), "pass word") {
		t.Error("the key has its password in it")
	}
	stop := errors.New("stop")
	must.Fail(t, must.Error(ReadPrivate(path, func() (string, error) { return "", stop })), stop)
}

// What is no key, or one that is damaged, is refused with its path.
func TestKeysThatAreRefused(t *testing.T) {
	private, public := string(read(t, "testdata/minisign.key")), string(read(t, "testdata/minisign.pub"))
	for name, text := range map[string]string{
		"nothing": "", "a line": "RW\n", "a secret key": private, "another algorithm": strings.Replace(public, "RW", "RX", 1),
		"cut":                public[:len(public)-8],
		"two keys":           public + strings.SplitAfter(public, "\n")[1],
		"a letter more":      strings.Replace(public, "QIgZNQb2R", "QIgZNQb2RA", 1),
		"padding":            strings.Replace(public, "QIgZNQb2R", "QIgZNQb2R=", 1),
		"in two lines":       strings.Replace(public, "RWR6", "RWR\n6", 1),
		"the end of Windows": strings.ReplaceAll(public, "\n", "\r\n"), "huge": strings.Repeat(" ", 1<<20),
		"another comment": strings.Replace(public, "untrusted", "trusted", 1),
	} {
		path := written(t, text)
		if _, err := ReadPublic(path); !errors.Is(err, ErrKey) || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("public, %s: %v", name, err)
		}
	}
	if _, err := ReadPublic(strings.Repeat("x", 10000)); !errors.Is(err, ErrKey) || len(err.Error()) > 1000 {
		t.Errorf("a long name: %v", err)
	}
	must.Fail(t, must.Error(ReadPublic(own(t, "minisign.key"))), "found a secret key")
	for name, text := range map[string]string{
		"nothing": "", "a public key": public, "cut": private[:len(private)-12],
		"another algorithm": strings.Replace(private, "RW", "RX", 1),
	} {
		path := written(t, text)
		if _, err := ReadPrivate(path, nil); !errors.Is(err, ErrKey) || !strings.HasPrefix(err.Error(), path+": ") {
			t.Errorf("private, %s: %v", name, err)
		}
	}
	comment, body, _ := strings.Cut(strings.TrimSuffix(private, "\n"), "\n")
	raw := must.Value(base64.StdEncoding.DecodeString(body))(t)
	for at := 62; at < 126; at++ { // seed and public half
		changed := append([]byte{}, raw...)
		changed[at] ^= 4
		path := written(t, comment+"\n"+base64.StdEncoding.EncodeToString(changed)+"\n")
		must.Fail(t, must.Error(ReadPrivate(path, nil)), ErrKey, "found a damaged key")
	}
	// minisign writes no checksum: the public half beside it tells of its number.
	for _, name := range []string{"a.pub", "a.key.pub"} {
		for at := 54; at < 62; at++ {
			changed := append([]byte{}, raw...)
			changed[at] ^= 4
			folder := t.TempDir()
			path := filepath.Join(folder, "a.key")
			must.Succeed(t, os.WriteFile(path, []byte(comment+"\n"+base64.StdEncoding.EncodeToString(changed)+"\n"), 0o600))
			must.Value(ReadPrivate(path, nil))(t) // nothing tells
			must.Succeed(t, os.WriteFile(filepath.Join(folder, name), []byte(public), 0o644))
			must.Fail(t, must.Error(ReadPrivate(path, nil)), ErrKey, "found a damaged key, of another number than "+
				filepath.Join(folder, name))
			must.Succeed(t, os.WriteFile(path, []byte(private), 0o600))
			must.Value(ReadPrivate(path, nil))(t)
		}
	}
	// One of graft's has a checksum of its number too.
	graft := filepath.Join(t.TempDir(), "a.key")
	must.Value(Generate(graft, graft+".pub", nil))(t)
	comment, body, _ = strings.Cut(strings.TrimSuffix(string(read(t, graft)), "\n"), "\n")
	raw = must.Value(base64.StdEncoding.DecodeString(body))(t)
	for at := 54; at < len(raw); at++ {
		changed := append([]byte{}, raw...)
		changed[at] ^= 4
		path := written(t, comment+"\n"+base64.StdEncoding.EncodeToString(changed)+"\n")
		must.Fail(t, must.Error(ReadPrivate(path, nil)), ErrKey, "found a damaged key")
	}
	for name, private := range map[string]bool{"minisign.key": true, "protected.key": true, "minisign.pub": false,
		"archive.tar.gz.minisig": false, "archive.tar.gz": false} {
		must.Equal(t, IsPrivate(read(t, filepath.Join("testdata", name))), private, name, !private)
	}
	path := own(t, "minisign.key")
	for _, mode := range []fs.FileMode{0o640, 0o604, 0o660, 0o666} {
		must.Succeed(t, os.Chmod(path, mode))
		must.Fail(t, must.Error(ReadPrivate(path, nil)), ErrKey, "run: chmod ")
	}
}

// What a user trusts is a file that only the user writes to.
func TestTrusted(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "data", "graft")
	trusted := At(folder)
	if keys, err := trusted.Read(); err != nil || len(keys) != 0 {
		t.Errorf("nothing yet: %v, %v", keys, err)
	}
	_, a := pair(t)
	_, b := pair(t)
	must.Value(trusted.Add(t.Context(), a, "someone", nil))(t)
	must.Value(trusted.Add(t.Context(), b, "", []string{"toy"}))(t)
	if _, err := trusted.Add(t.Context(), a, "", []string{"toy", "other"}); err != nil { // again
		t.Fatal(err)
	}
	keys, err := trusted.Read()
	if err != nil || len(keys) != 2 || keys.Named(a.String()).Name != "someone" ||
		len(keys.Named(a.String()).Plugins) != 2 || !keys.Has(b.ID()) {
		t.Fatalf("%+v, %v", keys, err)
	}
	other := b
	for _, c := range []struct {
		name    string
		key     PublicKey
		as      string
		plugins []string
		want    string
	}{
		{"a name with control characters", other, "a\x1b[31m", nil, "found a name"},
		{"a name without end", other, strings.Repeat("x", 1000), nil, "found a name"},
		{"no plugin's name", other, "", []string{"../x"}, "which is no plugin's name"},
		{"an empty plugin", other, "", []string{""}, "which is no plugin's name"},
	} {
		must.Fail(t, must.Error(trusted.Add(t.Context(), c.key, c.as, c.plugins)), ErrKey, c.want)
	}
	// Another key that says to have the ID of one that is trusted.
	raw, _ := base64.StdEncoding.DecodeString(b.String())
	id, _ := base64.StdEncoding.DecodeString(a.String())
	copy(raw[2:10], id[2:10])
	forged, ok := parsePublic(base64.StdEncoding.EncodeToString(raw))
	if !ok || forged.ID() != a.ID() {
		t.Fatal("no forged key")
	}
	must.Fail(t, must.Error(trusted.Add(t.Context(), forged, "", nil)), ErrKey, "found another key with the ID "+a.ID())
	for _, what := range []string{"", "nobody", "toy"} {
		must.Fail(t, must.Error(trusted.Remove(t.Context(), what)), ErrKey, "found no key")
	}
	for _, what := range []string{"someone", strings.ToLower(b.ID())} {
		if k, err := trusted.Remove(t.Context(), what); err != nil || k.Key == "" {
			t.Errorf("removing %q: %+v, %v", what, k, err)
		}
	}
	if keys, err := trusted.Read(); err != nil || len(keys) != 0 {
		t.Errorf("left %v, %v", keys, err)
	}
	must.Value(trusted.Add(t.Context(), a, "both", nil))(t)
	must.Value(trusted.Add(t.Context(), b, "both", nil))(t)
	must.Fail(t, must.Error(trusted.Remove(t.Context(), "both")), ErrKey, "found two keys of the name both")
	must.Succeed(t, os.Chmod(folder, 0o500))
	if os.Geteuid() != 0 {
		must.Fail(t, must.Error(trusted.Remove(t.Context(), a.ID())), refusal.ErrStore)
	}
	_ = os.Chmod(folder, 0o700)
}
