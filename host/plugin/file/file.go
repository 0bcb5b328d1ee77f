// Package file finds and hashes files of plugins.
package file

import (
	"crypto/sha256"
	"encoding/hex"
	"io"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// SHA256 is the SHA-256 of a file in hexadecimal.
func SHA256(path string) (string, error) {
	f, err := storage.OpenRegular(path)
	if err != nil {
		return "", &diagnostic.Error{Kind: refusal.ErrStore, Path: path, Found: err.Error(), Cause: err}
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", &diagnostic.Error{Kind: refusal.ErrStore, Path: path, Found: err.Error(), Fix: "check the disk",
			Cause: err}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
