package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"time"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Suffix is how the names of archives end that Pack writes.
const Suffix = ".tar.gz"

// Pack writes a plugin's folder as a .tar.gz, whose files lie below NAME-VERSION: those that Copy takes, in the order
// of their names, with one time, owner and mode for all. The same files give the same bytes, whoever packs them,
// wherever and when. What it writes it also reads as Unpack does: on an error, the bytes that were written are no
// archive.
func Pack(w io.Writer, folder string) error {
	m, err := manifest.Read(folder)
	if err != nil {
		return err
	}
	read, written := io.Pipe()
	checked := make(chan error, 1)
	go func() {
		in := &intake{ctx: context.Background(), source: folder, limits: defaultLimits, seen: map[string]bool{}}
		err := in.gzip(read)
		checked <- err
		read.CloseWithError(err) // nil: to the end
	}()
	err = pack(io.MultiWriter(w, written), folder, m.Name+"-"+m.Version)
	if err == nil {
		written.Close()
	} else {
		written.CloseWithError(errStopped) // what stopped is told, unless it was the reader
	}
	if refused := <-checked; err == nil || errors.Is(err, refused) {
		return unfit(refused)
	}
	return err
}

var errStopped = errors.New("packing stopped")

// unfit is what an installation would say of an archive, to who packs it.
func unfit(err error) error {
	var e *diagnostic.Error
	if !errors.As(err, &e) {
		return err
	}
	said := *e
	said.Fix = "leave it out: graft plugin install refuses such an archive"
	return &said
}

// pack writes the files of a folder, below another.
func pack(w io.Writer, folder, top string) error {
	packed, err := gzip.NewWriterLevel(w, gzip.BestCompression) // its header has no name and no time
	if err != nil {
		return err
	}
	files := tar.NewWriter(packed)
	err = walk(folder, func(string) error { return nil }, func(name string, size uint64, content io.Reader) error {
		if size <= signing.MaxKeyBytes {
			data, err := io.ReadAll(io.LimitReader(content, signing.MaxKeyBytes))
			if err != nil {
				return err
			}
			if signing.IsPrivate(data) {
				return &diagnostic.Error{Kind: refusal.ErrArchive, Path: path.Join(folder, name), Found: "found a private key",
					Needed: "a folder that all may read", Fix: "move it to where nobody else reads it"}
			}
			content = bytes.NewReader(data)
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: path.Join(top, name), Size: int64(size), Mode: 0o644,
			ModTime: time.Unix(0, 0)}
		if err := files.WriteHeader(h); err != nil {
			return err
		}
		n, err := io.Copy(files, content)
		if errors.Is(err, tar.ErrWriteTooLong) || err == nil && n != h.Size {
			return &diagnostic.Error{Kind: refusal.ErrArchive, Path: path.Join(folder, name),
				Found:  fmt.Sprintf("found other than the %d bytes that it had", size),
				Needed: "a file that nobody changes while it is packed", Fix: "wait until what writes it has ended", Cause: err}
		}
		return err
	})
	if err != nil {
		return err
	}
	return errors.Join(files.Close(), packed.Close())
}
