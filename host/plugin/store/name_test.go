package store

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
)

// TestNamesAreNotTaken holds that a plugin takes the place of another source's, or stands beside it, only where the user says so, and
// that nothing of it runs before.
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
		want := other + ": found that a plugin toy is there already, in " + where + ", needed a name that is not taken, or the word that this one takes it; run: graft plugin install --replace toy " + other
		if err == nil || err.Error() != want || !errors.Is(err, refusal.ErrVerification) {
			t.Errorf("%s: error\n%v\nwant\n%s", what, err, want)
		}
		if plugintest.Exists(mark) {
			t.Errorf("%s: it ran", what)
		}
	}
	refused("beside a bundled one", install(other, beside), bundled+", from option")
	if got := entries(t, s); len(got) != 0 {
		t.Errorf("the store holds %q", got)
	}
	if err := install(bundled, beside); err != nil {
		t.Errorf("the bundled one itself: %v", err)
	}
	if err := install(bundled, nothing); err != nil {
		t.Errorf("again from the same source: %v", err)
	}
	copied := source(t)
	if err := install(copied, beside); err != nil {
		t.Errorf("the same files from elsewhere: %v", err)
	}
	refused("over an installed one", install(other, nothing), filepath.Join(s.root, "toy")+", from "+copied)
	wrong := nothing
	wrong.Replace = "tory"
	if err := install(other, wrong); err == nil || !strings.Contains(err.Error(), "found the plugin toy, needed tory, which is to be replaced") || plugintest.Exists(mark) {
		t.Errorf("another name: %v", err)
	}
	beside.Replace = "toy"
	if err := install(other, beside); err != nil {
		t.Errorf("where the user says so: %v", err)
	}
	if known, err := s.Trust().Read(); err != nil || len(known.Plugins) != 1 || known.At(filepath.Join(s.root, "toy")) == nil {
		t.Errorf("the record holds %v, %v; want what is installed", known, err)
	}
}
