package encoder

import (
	"archive/zip"
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"

	"github.com/opgraft/graft/host/base/npy"
	"github.com/opgraft/graft/host/base/storage"
)

// NPZ writes what a model gives as arrays of NumPy in one archive:
//
//	embeddings [rows, width]; a line without a vector is a row of NaN
//	data, indices, indptr, shape and format of a sparse matrix, as scipy.sparse.load_npz reads it; such a line is empty
//	token_embeddings [tokens, width] and offsets [rows+1]: the tokens of a row are those from an offset to the next
//
// Arrays are gathered in files, since their lengths come last.
type NPZ struct {
	to     io.Writer
	gives  Gives
	width  int            // of a dense vector
	other  map[string]int // of a sparse one, and of a token's
	rows   int
	gaps   int // rows of NaN that wait for the width
	folder *storage.Folder
	arrays map[string]*array
	names  []string
	ends   map[string]int64 // of the last row, by the array of offsets
}

// array is one whose length is not known yet.
type array struct {
	file  *os.File
	to    *bufio.Writer
	kind  string // of an element, as NumPy writes it
	bytes int64
}

// NewNPZ begins an archive. width is that of a vector, 0 where the first one says it.
func NewNPZ(to io.Writer, gives Gives, width int) (*NPZ, error) {
	folder, err := storage.Temporary("")
	if err != nil {
		return nil, err
	}
	n := &NPZ{to: to, gives: gives, width: width, folder: folder, arrays: map[string]*array{}, ends: map[string]int64{},
		other: map[string]int{}}
	if !gives.Dense {
		n.other["sparse"], n.other["tokens"] = width, width
	}
	for _, a := range []struct {
		name, kind string
		has        bool
	}{{"embeddings", "<f4", gives.Dense}, {"data", "<f4", gives.Sparse}, {"indices", "<i4", gives.Sparse},
		{"indptr", "<i8", gives.Sparse}, {"token_embeddings", "<f4", gives.Tokens}, {"offsets", "<i8", gives.Tokens}} {
		if !a.has {
			continue
		}
		f, err := os.OpenFile(filepath.Join(folder.Path, a.name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, errors.Join(err, n.discard())
		}
		n.arrays[a.name], n.names = &array{file: f, to: bufio.NewWriter(f), kind: a.kind}, append(n.names, a.name)
	}
	for _, name := range []string{"indptr", "offsets"} {
		if a := n.arrays[name]; a != nil {
			if err := add(a, []int64{0}); err != nil {
				return nil, errors.Join(err, n.discard())
			}
		}
	}
	return n, nil
}

func add[T float32 | int32 | int64](a *array, values []T) error {
	a.bytes += int64(binary.Size(values))
	return binary.Write(a.to, binary.LittleEndian, values)
}

// Write adds a row; the zero Embedding is one without vectors.
func (n *NPZ) Write(e Embedding) error {
	n.rows++
	if n.gives.Dense {
		if err := n.dense(e.Dense); err != nil {
			return err
		}
	}
	if n.gives.Sparse {
		n.ends["indptr"] += int64(len(e.Sparse.Indices))
		n.other["sparse"] = cmp.Or(n.other["sparse"], e.Sparse.Width)
		if err := errors.Join(add(n.arrays["data"], e.Sparse.Weights), add(n.arrays["indices"], e.Sparse.Indices),
			add(n.arrays["indptr"], []int64{n.ends["indptr"]})); err != nil {
			return err
		}
	}
	if n.gives.Tokens {
		if w := e.Tokens.Width; w > 0 {
			if n.other["tokens"] = cmp.Or(n.other["tokens"], w); w != n.other["tokens"] {
				return fmt.Errorf("vectors of %d numbers after others of %d", w, n.other["tokens"])
			}
			n.ends["offsets"] += int64(len(e.Tokens.Values) / w)
		}
		return errors.Join(add(n.arrays["token_embeddings"], e.Tokens.Values),
			add(n.arrays["offsets"], []int64{n.ends["offsets"]}))
	}
	return nil
}

func (n *NPZ) dense(v []float32) error {
	if n.width = cmp.Or(n.width, len(v)); n.width == 0 {
		n.gaps++
		return nil
	}
	nan := make([]float32, n.width)
	for i := range nan {
		nan[i] = float32(math.NaN())
	}
	for ; n.gaps > 0; n.gaps-- {
		if err := add(n.arrays["embeddings"], nan); err != nil {
			return err
		}
	}
	if v == nil {
		v = nan
	}
	if len(v) != n.width {
		return fmt.Errorf("a vector of %d numbers after others of %d", len(v), n.width)
	}
	return add(n.arrays["embeddings"], v)
}

// Close writes the archive.
func (n *NPZ) Close() (err error) {
	defer func() { err = errors.Join(err, n.discard()) }()
	z := zip.NewWriter(n.to)
	entry := func(name, kind string, content io.Reader, shape ...int64) error {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name + ".npy", Method: zip.Store})
		if err == nil {
			_, err = w.Write(npy.Header{Type: kind, Shape: shape}.Append(nil, npyHeader))
		}
		if err == nil {
			_, err = io.Copy(w, content)
		}
		return err
	}
	for _, name := range n.names {
		a := n.arrays[name]
		if err := a.to.Flush(); err != nil {
			return err
		}
		if _, err := a.file.Seek(0, io.SeekStart); err != nil {
			return err
		}
		shape := []int64{a.bytes / int64(a.kind[2]-'0')}
		switch name {
		case "embeddings":
			shape = []int64{int64(n.rows), int64(n.width)}
		case "token_embeddings":
			shape = []int64{n.ends["offsets"], int64(n.other["tokens"])}
		}
		if err := entry(name, a.kind, a.file, shape...); err != nil {
			return err
		}
	}
	if n.gives.Sparse {
		shape := binary.LittleEndian.AppendUint64(nil, uint64(n.rows))
		shape = binary.LittleEndian.AppendUint64(shape, uint64(n.other["sparse"]))
		if err := errors.Join(entry("shape", "<i8", bytes.NewReader(shape), 2),
			entry("format", "|S3", bytes.NewReader([]byte("csr")))); err != nil {
			return err
		}
	}
	return z.Close()
}

func (n *NPZ) discard() error {
	for _, a := range n.arrays {
		a.file.Close()
	}
	return n.folder.Remove()
}
