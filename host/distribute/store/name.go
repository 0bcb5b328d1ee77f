package store

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/content"
	"github.com/opgraft/graft/host/plugin/discovery"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
)

// mayTake refuses to install a plugin under the name of one that came from elsewhere, unless opts name it: programs
// ask for plugins by name, and would run other code from then on. The same files again, the
// signature of the same key, and the same source of what no key signed are the same plugin.
func (s *Store) mayTake(p *prepared, opts verification.Options) error {
	m, source := p.manifest, p.source
	if opts.Replace != "" && opts.Replace != m.Name {
		return &diagnostic.Error{Kind: refusal.ErrVerification, Path: source,
			Found:  fmt.Sprintf("found the plugin %s", m.Name),
			Needed: fmt.Sprintf("%s, which is to be replaced", diagnostic.Quote(diagnostic.Clip(opts.Replace))),
			Fix:    "name the plugin that it is"}
	}
	if opts.Replace != "" {
		return nil
	}
	refuse := func(folder, from string) error {
		return &diagnostic.Error{Kind: refusal.ErrVerification, Path: source,
			Found:  fmt.Sprintf("found that a plugin %s is there already, in %s, from %s", m.Name, folder, from),
			Needed: "a name that is not taken, or the word that this one takes it",
			Fix:    fmt.Sprintf("run: graft plugin install --replace %s %s", m.Name, diagnostic.Quote(source))}
	}
	installed, err := s.current(m.Name)
	if err != nil {
		return err
	}
	if installed != "" && !sameFiles(installed, p.folder) {
		record, err := readRecord(installed)
		if err != nil {
			return refuse(filepath.Join(s.root, m.Name), "a source that is not known")
		}
		signed := p.signer != nil && record.Key == p.signer.Key
		if !signed && (record.Key != "" || record.Source != source) {
			from := record.Source
			if record.Key != "" {
				from += ", signed by the key " + record.Key
			}
			return refuse(filepath.Join(s.root, m.Name), from)
		}
	}
	for _, f := range discovery.Find(opts.Search).Found {
		if f.Manifest != nil && f.Manifest.Name == m.Name && f.Folder != installed && !sameFolder(f.Folder, source) &&
			!sameFiles(f.Folder, p.folder) {
			return refuse(f.Folder, f.Source)
		}
	}
	return nil
}

// sameFolder reports whether two paths are one folder.
func sameFolder(a, b string) bool {
	x, err := os.Stat(a)
	y, otherErr := os.Stat(b)
	return err == nil && otherErr == nil && os.SameFile(x, y)
}

// sameFiles reports whether two folders hold the same files, whoever may execute them.
func sameFiles(a, b string) bool {
	x, err := content.Read(a, nil)
	y, otherErr := content.Read(b, nil)
	if err != nil || otherErr != nil || len(x) != len(y) {
		return false
	}
	for name, f := range x {
		if y[name].SHA256 != f.SHA256 {
			return false
		}
	}
	return true
}
