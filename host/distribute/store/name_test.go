package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/distribute/signing"
	authors "github.com/opgraft/graft/host/distribute/signing/signingtest"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/internal/must"
)

// TestNamesAreNotTaken holds that a plugin takes the place of another source's, or stands beside it, only where the
// user says so, and that nothing of it runs before.
func TestNamesAreNotTaken(t *testing.T) {
	plugintest.Places(t)
	s := At(t.TempDir())
	bundled := source(t)
	mark := filepath.Join(t.TempDir(), "ran")
	other := source(t, `-DMARK_IN_CONSTRUCTOR="`+mark+`"`)
	install := func(from string, opts verification.Options) error {
		_, err := s.Install(context.Background(), from, opts)
		return err
	}
	beside := verification.Options{Search: discovery.Options{Folders: []string{bundled}, Only: true}}
	nothing := verification.Options{Search: discovery.Options{Only: true}}
	refused := func(what string, err error, where string) {
		t.Helper()
		want := other + ": found that a plugin toy is there already, in " + where +
			", needed a name that is not taken, or the word that this one takes it; run: graft plugin install --replace toy " +
			other
		must.FailExactly(t, err, want, refusal.ErrVerification)
		if plugintest.Exists(mark) {
			t.Errorf("%s: it ran", what)
		}
	}
	refused("beside a bundled one", install(other, beside), bundled+", from option")
	must.Empty(t, entries(t, s))
	must.Succeed(t, install(bundled, beside), "the bundled one itself")
	must.Succeed(t, install(bundled, nothing), "again from the same source")
	copied := source(t)
	must.Succeed(t, install(copied, beside), "the same files from elsewhere")
	refused("over an installed one", install(other, nothing), filepath.Join(s.root, "toy")+", from "+copied)
	wrong := nothing
	wrong.Replace = "tory"
	if err := install(other, wrong); err == nil ||
		!strings.Contains(err.Error(), "found the plugin toy, needed tory, which is to be replaced") ||
		plugintest.Exists(mark) {
		t.Errorf("another name: %v", err)
	}
	beside.Replace = "toy"
	must.Succeed(t, install(other, beside), "where the user says so")
	if known, err := s.Trust().Read(); err != nil || len(known.Plugins) != 1 ||
		known.At(discovery.Current(filepath.Join(s.root, "toy"))) == nil {
		t.Errorf("the record holds %v, %v; want what is installed", known, err)
	}
}

// TestNamesOfAKey: what the same key signed is the same plugin, wherever it comes from; what nobody or another key
// signed is not.
func TestNamesOfAKey(t *testing.T) {
	plugintest.Places(t)
	data := t.TempDir()
	s, author, other := At(data), authors.New(t), authors.New(t)
	author.Trust(t, data)
	other.Trust(t, data)
	packed := func(by *authors.Author, version string) string {
		folder := plugintest.Versioned(t, filepath.Join(t.TempDir(), "toy"), version)
		var b bytes.Buffer
		must.Succeed(t, archive.Pack(&b, folder))
		path := filepath.Join(t.TempDir(), "toy.tar.gz")
		plugintest.WriteFile(t, path, b.Bytes())
		if by != nil {
			by.Sign(t, path, "toy", version)
		}
		return path
	}
	for _, step := range []struct {
		name    string
		by      *authors.Author
		version string
		opts    verification.Options
		want    string
	}{
		{"the first", author, "0.1.0", verification.Options{}, ""},
		{"the next version", author, "0.2.0", verification.Options{}, ""},
		{"one from a registry", author, "0.3.0", verification.Options{From: "oci://example.org/toy:0.3.0"}, ""},
		{"an unsigned one", nil, "0.4.0", verification.Options{AllowUnsigned: true},
			"found that a plugin toy is there already, in " + filepath.Join(s.root, "toy") +
				", from oci://example.org/toy:0.3.0"},
		{"one of another key", other, "0.4.0", verification.Options{From: "oci://example.net/toy:0.4.0"},
			"run: graft plugin install --replace toy oci://example.net/toy:0.4.0"},
		{"one of another key from where the last came", other, "0.4.0",
			verification.Options{From: "oci://example.org/toy:0.3.0"}, "signed by the key " + author.Key.String()},
		{"an unsigned one from there", nil, "0.4.0",
			verification.Options{From: "oci://example.org/toy:0.3.0", AllowUnsigned: true}, "signed by the key "},
		{"one that is not what was asked for", author, "0.4.0",
			verification.Options{Accept: func(m *manifest.Manifest) error { return errors.New("not " + m.Version) }},
			"not 0.4.0"},
		{"an unsigned one, named", nil, "0.4.0", verification.Options{AllowUnsigned: true, Replace: "toy"}, ""},
		{"a signed one over it", author, "0.5.0", verification.Options{}, "found that a plugin toy is there already"},
	} {
		step.opts.Search = discovery.Options{Only: true}
		in, err := s.Install(context.Background(), packed(step.by, step.version), step.opts)
		switch {
		case step.want != "":
			must.Fail(t, err, step.want)
		case err != nil:
			t.Errorf("%s: %v", step.name, err)
		case in.Version != step.version || in.Unsigned != (step.by == nil) ||
			(step.by != nil && in.Key != step.by.Key.String()):
			t.Errorf("%s: %+v", step.name, in)
		default:
			list, err := s.List()
			if err != nil || len(list) != 1 || list[0].Key != in.Key || list[0].Unsigned != in.Unsigned ||
				list[0].Source != in.Source {
				t.Errorf("%s: the list has %+v, %v", step.name, list, err)
			}
		}
	}
}

// TestSwapDuringInstall: what is unpacked are the bytes that were checked, whatever becomes of the archive meanwhile.
func TestSwapDuringInstall(t *testing.T) {
	plugintest.Places(t)
	data := t.TempDir()
	s, author := At(data), authors.New(t)
	author.Trust(t, data)
	good := plugintest.Gzip(t, plugintest.Tar(t, plugintest.Entries(t, source(t), "")))
	evil := plugintest.Gzip(t,
		plugintest.Tar(t, append(plugintest.Entries(t, source(t), ""), plugintest.Entry{Name: "evil", Data: []byte("x")})))
	path, spare := filepath.Join(t.TempDir(), "toy.tar.gz"), filepath.Join(t.TempDir(), "spare.tar.gz")
	plugintest.WriteFile(t, path, good)
	author.Sign(t, path, "toy", "0.1.0")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // in place, and by name
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			content := [][]byte{good, evil}[i%2]
			if i%4 < 2 {
				_ = os.WriteFile(path, content, 0o644)
			} else if os.WriteFile(spare, content, 0o644) == nil {
				_ = os.Rename(spare, path)
			}
		}
	}()
	installed := 0
	for range 60 {
		_, err := s.Install(context.Background(), path, verification.Options{Search: discovery.Options{Only: true}})
		if err == nil {
			installed++
		} else if !errors.Is(err, signing.ErrSignature) {
			t.Errorf("an error of another kind: %v", err)
		}
		if plugintest.Exists(filepath.Join(s.root, "toy", "evil")) {
			t.Fatal("what nobody signed was installed")
		}
	}
	close(stop)
	<-stopped
	t.Logf("%d of 60 met what was signed", installed)
}
