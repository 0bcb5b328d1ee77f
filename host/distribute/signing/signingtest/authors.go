// Package authors signs archives of plugins in tests.
package authors

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/distribute/signing"
)

// Author signs archives.
type Author struct {
	Key     signing.PublicKey
	private signing.PrivateKey
}

// New makes one, whom nobody trusts yet.
func New(t testing.TB) *Author {
	t.Helper()
	folder := t.TempDir()
	path := filepath.Join(folder, "author.key")
	key, err := signing.Generate(path, filepath.Join(folder, "author.pub"), nil)
	if err != nil {
		t.Fatal(err)
	}
	private, err := signing.ReadPrivate(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Author{key, private}
}

// Sign writes the signature beside an archive.
func (a *Author) Sign(t testing.TB, archive, name, version string) {
	t.Helper()
	if _, err := signing.Sign(context.Background(), archive, a.private, name, version); err != nil {
		t.Fatal(err)
	}
}

// Trust has a data folder trust the author, for some plugins or all.
func (a *Author) Trust(t testing.TB, data string, plugins ...string) {
	t.Helper()
	if _, err := signing.At(data).Add(context.Background(), a.Key, "author", plugins); err != nil {
		t.Fatal(err)
	}
}
