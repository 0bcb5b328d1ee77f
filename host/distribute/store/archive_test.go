package store

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/internal/must"
)

func TestInstallArchives(t *testing.T) {
	from := source(t)
	for name, data := range map[string][]byte{
		"toy.tar.gz": plugintest.Gzip(t,
			plugintest.Tar(t, append([]plugintest.Entry{{Name: "toy-0.1/", Kind: tar.TypeDir}},
				plugintest.Entries(t, from, "toy-0.1/")...))),
		"toy.tgz": plugintest.Gzip(t, plugintest.Tar(t, plugintest.Entries(t, from, "./"))),
		"toy.tar": plugintest.Tar(t, plugintest.Entries(t, from, "")),
	} {
		t.Run(name, func(t *testing.T) {
			s := At(t.TempDir())
			path := filepath.Join(t.TempDir(), name)
			plugintest.WriteFile(t, path, data)
			in := must.Value(s.Install(context.Background(), path, verification.Options{AllowUnsigned: true}))(t)
			must.Equal(t, must.Value(os.Stat(filepath.Join(in.Folder, "libtoy.so")))(t).Mode().Perm(), 0o644)
		})
	}
}

func TestHostileArchives(t *testing.T) {
	file := func(name string) []plugintest.Entry {
		return []plugintest.Entry{{Name: "plugin.yaml", Data: []byte("x")}, {Name: name, Data: []byte("x")}}
	}
	zeros := make([]byte, 8<<20)
	many := make([]plugintest.Entry, 1100)
	for i := range many {
		many[i].Name = fmt.Sprint("f", i)
	}
	const fix = "; do not install it; ask its author for a plain archive of the plugin's folder"
	for _, test := range []struct {
		name    string
		entries []plugintest.Entry
		want    string // after the archive's path and ": "
	}{
		{"parent", file("../evil"),
			`found the entry "../evil", which leaves the folder or is not in plain form, needed paths inside the plugin's folder` + fix},
		{"parent inside", file("a/../../evil"),
			`found the entry "a/../../evil", which leaves the folder or is not in plain form, needed paths inside the plugin's folder` + fix},
		{"absolute", file("/tmp/evil"),
			`found the entry "/tmp/evil", an absolute path, needed paths inside the plugin's folder` + fix},
		{"backslash", file(`..\evil`),
			`found the entry "..\\evil", whose name is empty, too long or has a backslash, needed a plain path` + fix},
		{"end of a line", file("a\nb"),
			`found the entry "a\nb", whose name has characters that cannot be seen, needed a plain path` + fix},
		{"escape", file("a\x1b[2Jb"),
			`found the entry "a\x1b[2Jb", whose name has characters that cannot be seen, needed a plain path` + fix},
		{"link", []plugintest.Entry{{Name: "a", Kind: tar.TypeSymlink, Link: "/etc"}}, `found the entry "a", a link`},
		{"hard link", []plugintest.Entry{{Name: "a", Kind: tar.TypeLink, Link: "../../x"}},
			`found the entry "a", a link to "../../x", needed plain files and folders` + fix},
		{"named pipe", []plugintest.Entry{{Name: "a", Kind: tar.TypeFifo}},
			`found the entry "a", a device or special file, needed plain files and folders` + fix},
		{"device", []plugintest.Entry{{Name: "a", Kind: tar.TypeChar}},
			`found the entry "a", a device or special file, needed plain files and folders` + fix},
		{"twice", append(file("a"), plugintest.Entry{Name: "a"}), `found the entry "a", twice, needed every name once` + fix},
		{"file and folder", append(file("a"), plugintest.Entry{Name: "a/b"}), "cannot write: "},
		{"deep", file(strings.Repeat("d/", 40) + "f"),
			"found the entry \"" + strings.Repeat("d/", 30) + "...\", nested too deep, needed at most 8 folders" + fix},
		{"many", many, "found more than 1024 entries, needed fewer; leave out what the plugin does not need"},
		{"bomb", []plugintest.Entry{{Name: "a", Data: zeros}},
			"unpacking to more than 200 times its size, needed an honest archive" + fix},
	} {
		t.Run(test.name, func(t *testing.T) {
			outer := t.TempDir()
			s := At(filepath.Join(outer, "data"))
			path := filepath.Join(t.TempDir(), "evil.tar.gz")
			plugintest.WriteTarGz(t, path, test.entries)
			_, err := s.Install(context.Background(), path, verification.Options{AllowUnsigned: true})
			if err == nil || !strings.HasPrefix(err.Error(), path) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error\n%v\nwant\n%s: %s", err, path, test.want)
			}
			if !errors.Is(err, refusal.ErrArchive) && test.name != "file and folder" {
				t.Error("error is not of kind ErrArchive")
			}
			must.Empty(t, entries(t, s))
			if found, _ := filepath.Glob(filepath.Join(outer, "*")); len(found) != 1 {
				t.Errorf("beside the store: %q", found)
			}
		})
	}
}

func TestDamagedArchives(t *testing.T) {
	from := source(t)
	for name, data := range map[string][]byte{
		"a.tar.gz": plugintest.Gzip(t, plugintest.Tar(t, plugintest.Entries(t, from, ""))),
	} {
		s := At(t.TempDir())
		path := filepath.Join(t.TempDir(), name)
		for _, cut := range []int{0, 10, len(data) / 2, len(data) - 30} {
			plugintest.WriteFile(t, path, data[:cut])
			_, err := s.Install(context.Background(), path, verification.Options{AllowUnsigned: true})
			if err == nil || !strings.HasPrefix(err.Error(), path+": found a damaged archive: ") ||
				!strings.HasSuffix(err.Error(), ", needed a complete one; download it again") {
				t.Errorf("%s cut to %d: %v", name, cut, err)
			}
		}
		must.Empty(t, entries(t, s))
	}
}
