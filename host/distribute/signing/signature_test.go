package signing

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aead.dev/minisign"

	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

// signed is an archive with its signature.
func signed(t *testing.T, k PrivateKey, name, version string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "a.tar.gz")
	must.Succeed(t, os.WriteFile(path, []byte("an archive"), 0o600))
	if at, err := Sign(t.Context(), path, k, name, version); err != nil || at != path+Suffix {
		t.Fatal(at, err)
	}
	return path
}

// check reads an archive and its signature, as an installation does.
func check(t *testing.T, archive string, keys Keys) (*Signer, error) {
	t.Helper()
	s, err := Read(archive)
	if err != nil || s == nil {
		return nil, errors.Join(err, errors.New("no signature"))
	}
	digest := NewDigest(t.Context(), bytes.NewReader(read(t, archive)))
	must.Value(io.Copy(io.Discard, digest))(t)
	return s.Verify(digest, keys, archive, "ACCEPT")
}

func trusting(k PublicKey, plugins ...string) Keys {
	return Keys{{Key: k.String(), ID: k.ID(), Name: "someone", Plugins: plugins}}
}

// The same archive and key give the same signature, which says who signed what.
func TestSign(t *testing.T) {
	private, public := pair(t)
	path := signed(t, private, "toy", "0.1.0")
	first := read(t, path+Suffix)
	signer, err := check(t, path, trusting(public))
	if err != nil || signer.Key != public.String() || signer.ID != public.ID() || signer.Name != "someone" ||
		signer.Plugin != "toy" || signer.Version != "0.1.0" {
		t.Fatalf("%+v, %v", signer, err)
	}
	must.Succeed(t, signer.Fits("a", "toy", "0.1.0"))
	for _, other := range [][2]string{{"toy", "0.1.1"}, {"other", "0.1.0"}, {"", ""}} {
		must.Fail(t, signer.Fits("a", other[0], other[1]), ErrSignature, refusal.ErrVerification)
	}
	if again := read(t, signed(t, private, "toy", "0.1.0")+Suffix); !bytes.Equal(again, first) {
		t.Errorf("%q, and again %q", first, again)
	}
	if s, err := Read(filepath.Join(t.TempDir(), "none")); s != nil || err != nil {
		t.Errorf("no signature: %v, %v", s, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	must.Fail(t, must.Error(Sign(ctx, path, private, "toy", "0.2.0")), context.Canceled)
	if !bytes.Equal(read(t, path+Suffix), first) {
		t.Error("a signing that was stopped wrote")
	}
	must.Fail(t, must.Error(Sign(t.Context(), t.TempDir(), private, "toy", "0.2.0")), ErrSignature)
}

// What minisign 0.11 signed is signed, and its older form, which signs what is not hashed, is refused.
func TestSignaturesOfMinisign(t *testing.T) {
	public := must.Value(ReadPublic("testdata/minisign.pub"))(t)
	signer, err := check(t, "testdata/archive.tar.gz", trusting(public))
	if err != nil || signer.Plugin != "toy" || signer.Version != "0.1.0" {
		t.Errorf("%+v, %v", signer, err)
	}
	path := written(t, "an archive\n")
	must.Succeed(t, os.WriteFile(path+Suffix, read(t, "testdata/legacy.minisig"), 0o600))
	must.Fail(t, must.Error(check(t, path, trusting(public))), ErrSignature)
}

// TestLegacySignature: what minisign -l writes is refused as that.
func TestLegacySignature(t *testing.T) {
	private, _ := pair(t)
	path := signed(t, private, "toy", "0.1.0")
	must.Succeed(t, os.WriteFile(path+Suffix, minisign.Sign(private.key, []byte("an archive")), 0o600))
	if _, err := Read(path); !errors.Is(err, ErrSignature) || !strings.Contains(err.Error(), "minisign's legacy form") {
		t.Error(err)
	}
}

// Who is not trusted is named, with the command that would change that; the key only where it did make the signature.
func TestUntrusted(t *testing.T) {
	private, public := pair(t)
	_, other := pair(t)
	path := signed(t, private, "toy", "0.1.0")
	const need = ", which is not trusted, needed one of a key in graft plugin trust list; "
	_, err := check(t, path, trusting(other))
	must.FailExactly(t, err, path+": found a signature of the key "+public.ID()+need+
		"if its author says that this is their key, run: graft plugin trust add "+public.String()+
		"; or install it unchecked: ACCEPT")
	must.Fail(t, err, ErrUntrusted, refusal.ErrVerification)
	text := string(read(t, path+Suffix))
	for name, changed := range map[string]string{
		"another key":  strings.Replace(text, public.String(), other.String(), 1),
		"no key":       strings.Replace(text, public.String(), "", 1),
		"no comment":   "untrusted comment: " + text[strings.Index(text, "\n"):],
		"other signed": strings.Replace(text, "version:0.1.0", "version:0.2.0", 1),
	} {
		must.Succeed(t, os.WriteFile(path+Suffix, []byte(changed), 0o600))
		_, err := check(t, path, trusting(other))
		if want := path + ": found a signature of the key " + public.ID() + need +
			"get its author's public key from where you know it is theirs, and run: graft plugin trust add FILE.pub; or " +
			"install it unchecked: ACCEPT"; err == nil || err.Error() != want {
			t.Errorf("%s: error\n%v\nwant\n%s", name, err, want)
		}
	}
	if err := Unsigned("a.tar.gz", "ACCEPT"); !errors.Is(err, ErrUntrusted) ||
		!strings.HasSuffix(err.Error(), "or install it unchecked: ACCEPT") {
		t.Error(err)
	}
}

// A key may be trusted for some plugins.
func TestTrustedFor(t *testing.T) {
	private, public := pair(t)
	signer, err := check(t, signed(t, private, "toy", "0.1.0"), trusting(public, "other", "toy"))
	if err != nil || signer.Fits("a", "toy", "0.1.0") != nil {
		t.Errorf("%v, %v", err, signer.Fits("a", "toy", "0.1.0"))
	}
	if signer, err = check(t, signed(t, private, "toy", "0.1.0"), trusting(public, "other")); err != nil {
		t.Fatal(err)
	}
	if err := signer.Fits("a", "toy", "0.1.0"); !errors.Is(err, ErrUntrusted) ||
		!strings.Contains(err.Error(), "run: graft plugin trust add "+public.String()+" --for other,toy") {
		t.Error(err)
	}
}

// FuzzSignature: nothing but a signature's own form is read as one, and none but those that the key made are right.
func FuzzSignature(f *testing.F) {
	public := must.Value(ReadPublic("testdata/minisign.pub"))(f)
	for _, name := range []string{"testdata/archive.tar.gz.minisig", "testdata/legacy.minisig", "testdata/minisign.pub"} {
		data := must.Value(os.ReadFile(name))(f)
		f.Add(data)
	}
	good := must.Value(os.ReadFile("testdata/archive.tar.gz.minisig"))(f)
	_, good, _ = bytes.Cut(good, []byte("\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "a")
		for name, content := range map[string][]byte{path: []byte("an archive\n"), path + Suffix: data} {
			must.Succeed(t, os.WriteFile(name, content, 0o600))
		}
		must.CostLittle(t, len(data), func() {
			if _, err := check(t, path, trusting(public)); err == nil {
				if _, rest, _ := bytes.Cut(data, []byte("\n")); !bytes.Equal(rest, good) {
					t.Errorf("%q is taken for a signature", data)
				}
			}
		})
	})
}
