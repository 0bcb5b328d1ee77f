package archive

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Unpack extracts an archive below an empty folder. All of it is read and checked before the first file is written, and
// what was written is on the disk when it returns.
func Unpack(ctx context.Context, source, folder string) error {
	return unpack(ctx, source, folder, defaultLimits)
}

func unpack(ctx context.Context, source, folder string, l limits) error {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return &diagnostic.Error{Kind: refusal.ErrStore, Path: folder, Found: diagnostic.Cause(err), Cause: err}
	}
	defer root.Close()
	f, err := storage.OpenRegular(source)
	if err != nil {
		return &diagnostic.Error{Kind: refusal.ErrArchive, Path: source, Found: "cannot read: " + diagnostic.Cause(err),
			Cause: err}
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return &diagnostic.Error{Kind: refusal.ErrArchive, Path: source, Found: "cannot read: " + diagnostic.Cause(err),
			Cause: err}
	}
	for _, to := range []*os.Root{nil, root} {
		in := &intake{ctx: ctx, source: source, root: to, limits: l, seen: map[string]bool{}}
		if err := in.archive(f, info.Size()); err != nil {
			return err
		}
		if to != nil {
			return in.settle()
		}
	}
	return nil
}

// archive reads an archive from its beginning to its end.
func (in *intake) archive(f *os.File, size int64) error {
	whole := io.NewSectionReader(f, 0, size)
	if strings.HasSuffix(strings.ToLower(in.source), ".tar") {
		return in.tar(whole)
	}
	return in.gzip(whole)
}

// gzip reads a compressed tar from its beginning to its end.
func (in *intake) gzip(r io.Reader) error {
	counted := &countingReader{r: r}
	in.packed = func() int64 { return counted.n }
	// With a reader of bytes, gzip reads no further than its end: what follows is read as another member, and refused
	// where it is none.
	packed, err := gzip.NewReader(bufio.NewReader(counted))
	if err != nil {
		return in.damaged(err)
	}
	return in.tar(packed)
}

type countingReader struct {
	r io.Reader
	n int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}

func (in *intake) tar(r io.Reader) error {
	// Headers are read before any file is counted: bound them too.
	bounded := &boundedReader{in: in, r: r}
	reader := tar.NewReader(bounded)
	for {
		end := bounded.n
		h, err := reader.Next()
		if err == io.EOF {
			return in.ended(bounded, end)
		}
		if err != nil {
			return in.damaged(err)
		}
		switch {
		case sparse(h):
			err = in.refuse(h.Name, "a sparse file, which is larger than what is stored of it", "files that are stored whole")
		case h.Typeflag == tar.TypeReg:
			err = in.file(h.Name, uint64(h.Size), reader)
		case h.Typeflag == tar.TypeDir:
			err = in.folder(h.Name)
		case h.Typeflag == tar.TypeSymlink, h.Typeflag == tar.TypeLink:
			err = in.refuse(h.Name, "a link to "+fmt.Sprintf("%q", diagnostic.Clip(h.Linkname)), "plain files and folders")
		case h.Typeflag == tar.TypeXGlobalHeader: // git archive writes one
		default:
			err = in.refuse(h.Name, "a device or special file", "plain files and folders")
		}
		if err != nil {
			return err
		}
	}
}

// sparse reports a file of which only parts are stored: GNU's old form, or any of its forms in PAX records.
func sparse(h *tar.Header) bool {
	if h.Typeflag == tar.TypeGNUSparse {
		return true
	}
	for key := range h.PAXRecords {
		if strings.HasPrefix(key, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// tarEnd is the length of what ends a tar: two blocks of zeros.
const tarEnd = 1024

// ended reads what follows the last file, from the offset end on, which is zeros and at least tarEnd of them; and with
// it the checksum and the length that end a gzip.
func (in *intake) ended(r *boundedReader, end int64) error {
	if _, err := io.Copy(io.Discard, r); err != nil {
		return in.damaged(err)
	}
	switch {
	case r.n-end < tarEnd:
		return in.damaged(errors.New("it ends early, without the zeros that end a tar"))
	case r.n-r.zeros > end:
		return in.damaged(fmt.Errorf("it goes on after its end, at byte %d", r.n-r.zeros))
	}
	return nil
}

// boundedReader ends a stream that unpacks to more than the limit and the headers that many files need.
type boundedReader struct {
	in    *intake
	r     io.Reader
	n     int64
	zeros int64 // how many of the last bytes are zero
}

func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	b.n += int64(n)
	b.zeros += int64(n)
	for i := n - 1; i >= 0; i-- {
		if p[i] != 0 {
			b.zeros = int64(n - 1 - i)
			break
		}
	}
	if b.n > b.in.limits.bytes+int64(b.in.limits.files)*4096 {
		return n, fmt.Errorf("found more than %d bytes", b.n)
	}
	if b.in.packed != nil && b.n > slack && b.n/b.in.limits.ratio > b.in.packed() {
		return n, b.in.refuse("(archive)", fmt.Sprintf("unpacking to more than %d times its size", b.in.limits.ratio),
			"an honest archive")
	}
	return n, err
}
