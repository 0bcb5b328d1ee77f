package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/distribute/author"
	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
)

func (c *cli) pluginPack() *cobra.Command {
	return &cobra.Command{
		Use:   "pack DIR",
		Short: "Write a plugin's folder as one archive, for all devices and platforms whose libraries are there",
		Long: `Writes the files of a plugin's folder, hidden ones aside, as NAME-VERSION.tar.gz, or as the file that
-o names. The manifest and the libraries are checked first, and none of them is run.
The same files give the same archive, to the byte, whoever packs them, wherever and when.`,
		Example: "  graft plugin pack ./flash-decode\n  graft plugin pack ./flash-decode -o " +
			"dist/flash-decode-0.1.0.tar.gz",
		Args:        exactly(1, "a plugin's folder"),
		Annotations: map[string]string{writesFile: "yes"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if info, err := os.Stat(args[0]); err == nil && !info.IsDir() {
				return &diagnostic.Error{Kind: refusal.ErrArchive, Path: args[0], Found: "found a single file",
					Needed: "a plugin's folder"}
			}
			folder := packed(args[0])
			in, err := store.Inspect(cmd.Context(), folder)
			if err != nil {
				return err
			}
			libraries, absent, err := fit(in)
			if err != nil {
				return err
			}
			m := in.Manifest
			if err := verification.HasCases(m, folder); err != nil {
				return err
			}
			path := cmp.Or(c.file, m.Name+"-"+m.Version+archive.Suffix)
			if err := apart(folder, path); err != nil {
				return err
			}
			digest, size, err := pack(cmd.Context(), folder, path)
			if err != nil {
				return err
			}
			return c.print(struct {
				Name      string   `json:"name"`
				Version   string   `json:"version"`
				Archive   string   `json:"archive"`
				SHA256    string   `json:"sha256"`
				Bytes     int64    `json:"bytes"`
				Libraries []string `json:"libraries"`
				Absent    []string `json:"absent"`
			}{m.Name, m.Version, path, digest, size, libraries, absent}, func(w *page) {
				w.printf("packed %s %s into %s (%d bytes)\nsha256 %s\n", m.Name, m.Version, path, size, digest)
				for _, name := range libraries {
					w.printf("with %s\n", name)
				}
				for _, name := range absent {
					w.printf("without %s, which is not there\n", name)
				}
			})
		},
	}
}

// packed is the folder whose files are packed: of a folder of sources, which holds no library, what graft plugin
// build made of it.
func packed(folder string) string {
	m, err := manifest.Read(folder)
	if err != nil {
		return folder // what is wrong with it is said by who reads it
	}
	for i := range m.Variants {
		if !manifest.Absent(folder, &m.Variants[i]) {
			return folder
		}
	}
	if built := filepath.Join(author.Plugins(folder), m.Name); manifest.Exists(built) {
		return built
	}
	return folder
}

// apart refuses an archive in the folder that it is made of: the next one would have it inside.
func apart(folder, path string) error {
	top, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil // what is wrong is said by who reads or writes it
	}
	at, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err != nil {
		return nil
	}
	for _, p := range []*string{&top, &at} {
		if *p, err = filepath.Abs(*p); err != nil {
			return err
		}
	}
	if rest, err := filepath.Rel(top, at); err != nil || rest == ".." || strings.HasPrefix(rest, "../") {
		return nil
	}
	return &diagnostic.Error{Kind: refusal.ErrArchive, Path: path,
		Found:  "found that the archive would lie in the folder that is packed",
		Needed: "another place, since the next one would have it inside",
		Fix:    "name one with -o, such as -o ../" + filepath.Base(path)}
}

// fit are the libraries of a plugin that can be packed, and those that are not there. One that no host would load is
// an error.
func fit(in *store.Inspection) (packed, absent []string, err error) {
	packed, absent = []string{}, []string{}
	for _, l := range in.Libraries {
		switch {
		case l.Absent || l.Library == nil && manifest.Absent(in.Path, l.Variant):
			absent = append(absent, l.File)
		case l.Problem != "":
			return nil, nil, &diagnostic.Error{Kind: refusal.ErrIncompatible, Path: l.File, Found: l.Problem}
		default:
			packed = append(packed, l.File)
		}
	}
	if len(packed) == 0 {
		return nil, nil, &diagnostic.Error{Kind: refusal.ErrNotFound, Path: in.Path,
			Found: "found none of the libraries that its manifest names", Needed: "one of them", Fix: "build the plugin first"}
	}
	return packed, absent, nil
}

// pack writes an archive in one step, and gives its hash and its size.
func pack(ctx context.Context, folder, path string) (digest string, size int64, err error) {
	hash := sha256.New()
	count := &lengthWriter{ctx: ctx}
	err = storage.WriteFrom(path, storage.Shared, func(w io.Writer) error {
		return archive.Pack(io.MultiWriter(count, w, hash), folder)
	})
	var known *diagnostic.Error
	if err != nil && !errors.As(err, &known) && ctx.Err() == nil {
		err = &diagnostic.Error{Kind: refusal.ErrArchive, Path: path, Found: "cannot write: " + diagnostic.Cause(err),
			Cause: err}
	}
	return hex.EncodeToString(hash.Sum(nil)), count.n, err
}

// lengthWriter counts bytes, until its context ends.
type lengthWriter struct {
	ctx context.Context
	n   int64
}

func (l *lengthWriter) Write(p []byte) (int, error) {
	l.n += int64(len(p))
	return len(p), l.ctx.Err()
}
