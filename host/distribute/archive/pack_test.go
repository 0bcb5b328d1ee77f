package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

// tree writes a plugin's folder in an order, with a umask.
func tree(t *testing.T, umask int, backwards bool, more map[string]string) string {
	t.Helper()
	defer syscall.Umask(syscall.Umask(umask))
	folder := filepath.Join(t.TempDir(), "anything")
	all := map[string]string{"plugin.yaml": plugintest.Manifest, "libtoy.so": "a library", "LICENSE": "free",
		"data/deep/x.bin": "x", ".hidden/y": "y", ".z": "z"}
	for name, text := range more {
		all[name] = text
	}
	names := []string{}
	for name := range all {
		names = append(names, name)
	}
	slices.Sort(names)
	if backwards {
		slices.Reverse(names)
	}
	for _, name := range names {
		path := filepath.Join(folder, name)
		must.Succeed(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o777),
			os.WriteFile(path, []byte(all[name]), 0o666)))
	}
	return folder
}

func packed(t *testing.T, folder string) []byte {
	t.Helper()
	var b bytes.Buffer
	must.Succeed(t, Pack(&b, folder))
	return b.Bytes()
}

// The same files are the same bytes, whatever the umask, the times, the order in which they were written, and links
// in place of files.
func TestPacksAreReproducible(t *testing.T) {
	first := tree(t, 0o022, false, nil)
	want := packed(t, first)
	for name, change := range map[string]func() string{
		"again":          func() string { return first },
		"another folder": func() string { return tree(t, 0o022, false, nil) },
		"another umask":  func() string { return tree(t, 0o077, false, nil) },
		"written by all": func() string { return tree(t, 0, false, nil) },
		"another order":  func() string { return tree(t, 0o022, true, nil) },
		"a hidden file":  func() string { return tree(t, 0o022, false, map[string]string{".git/config": "x"}) },
		"an empty folder": func() string {
			f := tree(t, 0o022, false, nil)
			return errorless(t, f, os.Mkdir(filepath.Join(f, "empty"), 0o755))
		},
		"executable": func() string {
			f := tree(t, 0o022, false, nil)
			return errorless(t, f, os.Chmod(filepath.Join(f, "libtoy.so"), 0o755))
		},
		"another time": func() string {
			f := tree(t, 0o022, false, nil)
			return errorless(t, f, os.Chtimes(filepath.Join(f, "libtoy.so"), time.Unix(1, 0), time.Unix(2, 0)))
		},
		"a link": func() string {
			f := tree(t, 0o022, false, map[string]string{".store/lib": "a library"})
			return errorless(t, f, errors.Join(os.Remove(filepath.Join(f, "libtoy.so")),
				os.Symlink(".store/lib", filepath.Join(f, "libtoy.so"))))
		},
	} {
		if got := packed(t, change()); !bytes.Equal(got, want) {
			t.Errorf("%s: %d bytes that are others than the %d", name, len(got), len(want))
		}
	}
	for name, other := range map[string]string{
		"another content": tree(t, 0o022, false, map[string]string{"LICENSE": "Free"}),
		"a file more":     tree(t, 0o022, false, map[string]string{"x": ""}),
		"another version": tree(t, 0o022, false,
			map[string]string{"plugin.yaml": strings.Replace(plugintest.Manifest, "0.1.0", "0.2.0", 1)}),
	} {
		if bytes.Equal(packed(t, other), want) {
			t.Errorf("%s: the same bytes", name)
		}
	}
}

// What Pack wrote says nothing of who packed it, and is unpacked to the same files.
func TestWhatIsPacked(t *testing.T) {
	data := packed(t, tree(t, 0o077, false, nil))
	g := must.Value(gzip.NewReader(bytes.NewReader(data)))(t)
	if g.Name != "" || g.Comment != "" || !g.ModTime.IsZero() || g.OS != 255 {
		t.Errorf("the header of gzip is %+v", g.Header)
	}
	var names []string
	for r := tar.NewReader(g); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		must.Succeed(t, err)
		if names = append(names, h.Name); h.Mode != 0o644 || h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.Gname != "" ||
			h.ModTime.Unix() != 0 || len(h.PAXRecords) > 0 {
			t.Errorf("the header of a file is %+v", h)
		}
	}
	must.Equal(t, names, []string{"toy-0.1.0/LICENSE", "toy-0.1.0/data/deep/x.bin", "toy-0.1.0/libtoy.so",
		"toy-0.1.0/plugin.yaml"})
	path, to := filepath.Join(t.TempDir(), "a.tar.gz"), t.TempDir()
	plugintest.WriteFile(t, path, data)
	must.Succeed(t, Unpack(context.Background(), path, to))
	if text := plugintest.ReadFile(t, filepath.Join(to, "toy-0.1.0/data/deep/x.bin")); string(text) != "x" {
		t.Errorf("unpacked %q", text)
	}
}

// What could not be installed is not packed, and says so.
func TestPackRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(folder string) error
		want   string
	}{
		"no manifest": {func(f string) error { return os.Remove(filepath.Join(f, "plugin.yaml")) }, "plugin.yaml"},
		"a bad manifest": {func(f string) error {
			return os.WriteFile(filepath.Join(f, "plugin.yaml"), []byte("name: ["),
				0o644)
		}, "plugin.yaml"},
		"a named pipe": {func(f string) error { return syscall.Mkfifo(filepath.Join(f, "pipe"), 0o644) },
			"/pipe: found a named pipe, needed plain files and folders; remove it from the folder"},
		"a link outside": {func(f string) error { return os.Symlink("/etc/passwd", filepath.Join(f, "link")) },
			"/link: cannot follow the link"},
		"a link to none": {func(f string) error { return os.Symlink("none", filepath.Join(f, "link")) },
			"/link: cannot follow the link"},
		"a private key": {func(f string) error {
			_, err := signing.Generate(filepath.Join(f, "me.key"), filepath.Join(f, "me.pub"), nil)
			return err
		}, "/me.key: found a private key, needed a folder that all may read; move it to where nobody else reads it"},
		"a backslash": {func(f string) error { return os.WriteFile(filepath.Join(f, `a\b`), nil, 0o644) },
			`has a backslash, needed a plain path; leave it out: graft plugin install refuses such an archive`},
		"a bomb": {func(f string) error { return os.WriteFile(filepath.Join(f, "zeros"), make([]byte, 16<<20), 0o644) },
			"unpacking to more than 200 times its size, needed an honest archive; leave it out: graft plugin install refuses " +
				"such an archive"},
		"many files": {func(f string) (err error) {
			for i := range 1100 {
				err = errors.Join(err, os.WriteFile(filepath.Join(f, fmt.Sprint("f", i)), nil, 0o644))
			}
			return err
		}, "found more than 1024 entries, needed fewer; leave it out"},
		"deep": {func(f string) error { return os.MkdirAll(filepath.Join(f, "1/2/3/4/5/6/7/8"), 0o755) }, ""},
		"too deep": {func(f string) error {
			return errors.Join(os.MkdirAll(filepath.Join(f, "1/2/3/4/5/6/7/8"), 0o755),
				os.WriteFile(filepath.Join(f, "1/2/3/4/5/6/7/8/9"), nil, 0o644))
		}, "nested too deep, needed at most 8 folders"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := tree(t, 0o022, false, nil)
			must.Succeed(t, c.change(folder))
			err := Pack(io.Discard, folder)
			if c.want == "" {
				must.Succeed(t, err)
				return
			}
			must.Fail(t, err, c.want)
			if !errors.Is(err, refusal.ErrArchive) && !errors.Is(err, refusal.ErrManifest) {
				t.Error("the error has no kind")
			}
		})
	}
	must.Fail(t, Pack(io.Discard, filepath.Join(t.TempDir(), "none")), fs.ErrNotExist)
	full := errors.New("full")
	must.Fail(t, Pack(failing{full}, tree(t, 0o022, false, nil)), full)
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func errorless(t *testing.T, folder string, err error) string {
	t.Helper()
	must.Succeed(t, err)
	return folder
}
