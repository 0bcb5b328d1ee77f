//go:build linux && (amd64 || arm64)

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/distribute/signing"
	"github.com/opgraft/graft/host/distribute/store"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/tests/faults"
)

// TestFaultsOfSigning is TestFaultsOfCommands for archives, signatures, the keys that are trusted, and archives that
// are installed.
func TestFaultsOfSigning(t *testing.T) {
	s := signables(t)
	for name, w := range map[string]*writing{"pack": s.file("toy.tar.gz", "plugin", "pack", "in/toy", "-o",
		"out/toy.tar.gz", "-q"),
		"sign":  s.file("toy.tar.gz.minisig", "plugin", "sign", "out/toy.tar.gz", "--key", "in/me.key", "-q"),
		"trust": s.trusting(), "install": s.installing()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w.walk(t)
		})
	}
}

// made are a plugin's folder, its archive, a pair of keys and the signature, as files with their content.
type made struct {
	folder                          map[string]string
	archive, signature, key, public string
}

func signables(t *testing.T) *made {
	t.Helper()
	at := t.TempDir()
	library := filepath.Join(at, "toy.so")
	plugintest.Compile(t, library, "-DARCH=\""+runtime.GOARCH+"\"", "-I../../abi",
		"../../host/plugin/plugintest/testdata/plugin.c")
	folder := plugintest.Write(t, filepath.Join(at, "toy"), plugintest.Manifest+plugintest.Cases, library)
	key := filepath.Join(at, "me.key")
	for _, args := range [][]string{{"plugin", "pack", folder, "-o", key + ".tar.gz"},
		{"plugin", "keygen", key, "--no-password"}, {"plugin", "sign", key + ".tar.gz", "--key", key}} {
		if code := run(args, io.Discard, os.Stderr); code != exitOK {
			t.Fatalf("%q: exit code %d", args, code)
		}
	}
	read := func(path string) string { return string(plugintest.ReadFile(t, path)) }
	return &made{files(t, folder), read(key + ".tar.gz"), read(key + ".tar.gz" + signing.Suffix), read(key),
		read(filepath.Join(at, "me.pub"))}
}

// lay writes all of it, the archive and the signature as they were before.
func (m *made) lay(p *place, archive, signature string) {
	lay(p.t, p.at("in", "toy"), m.folder)
	lay(p.t, p.folder, map[string]string{"in/me.key": m.key, "in/me.pub": m.public, "out/toy.tar.gz": archive,
		"out/toy.tar.gz.minisig": signature})
	if err := os.Chmod(p.at("in", "me.key"), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

// file writes one file over an older one.
func (m *made) file(name string, args ...string) *writing {
	want := map[string]string{"toy.tar.gz": m.archive, "toy.tar.gz.minisig": m.signature}[name]
	found := func(p *place) (string, error) {
		data, err := os.ReadFile(p.at("out", name))
		if text := string(data); err == nil && text != "old" && text != want {
			err = fmt.Errorf("found %d bytes, neither the old file nor the new one", len(data))
		}
		return string(data), err
	}
	return &writing{args: args, again: args,
		prepare: func(p *place) {
			if name == "toy.tar.gz" {
				m.lay(p, "old", "old")
			} else {
				m.lay(p, m.archive, "old")
			}
		},
		whole: func(p *place, run *faults.Run) error {
			data, err := found(p)
			if err == nil && run.Code == 0 && data == "old" {
				err = errors.New("it went well, and the old file is there")
			}
			return err
		},
		after: func(p *place, _ *faults.Run) error {
			data, err := found(p)
			if entries, _ := os.ReadDir(p.at("out")); err == nil && (data == "old" || len(entries) != 2) {
				err = fmt.Errorf("found %v", entries)
			}
			return err
		}}
}

// trusting adds a key to another.
func (m *made) trusting() *writing {
	const other = "RWR6/ims6Pg3CJItZIj8UJCJ57GdW71YdAn7qCFSn4ixbhrQIgZNQb2R"
	keys := func(p *place) (int, error) {
		known, err := signing.At(p.at("data", "graft")).Read()
		if err == nil && known.Named(other) == nil {
			err = errors.New("the key that was trusted is gone")
		}
		return len(known), err
	}
	args := []string{"plugin", "trust", "add", "in/me.pub", "-q"}
	return &writing{args: args, again: args,
		prepare: func(p *place) {
			m.lay(p, "", "")
			if run := p.command(faults.Fault{}, "plugin", "trust", "add", other); run.Code != 0 {
				p.t.Fatal(run.Stderr)
			}
		},
		whole: func(p *place, run *faults.Run) error {
			n, err := keys(p)
			if err == nil && run.Code == 0 && n != 2 {
				err = fmt.Errorf("it went well, and there are %d keys", n)
			}
			return err
		},
		after: func(p *place, _ *faults.Run) error {
			n, err := keys(p)
			if entries, _ := os.ReadDir(p.at("data", "graft")); err == nil && (n != 2 || len(entries) != 2) {
				err = fmt.Errorf("found %d keys in %v", n, entries)
			}
			return err
		}}
}

// installing installs a signed archive where nothing is.
func (m *made) installing() *writing {
	there := func(p *place) (bool, error) {
		list, err := store.At(p.at("data", "graft")).List()
		switch {
		case err != nil || len(list) == 0:
			return false, err
		case len(list) != 1 || list[0].Problem != "" || list[0].Key == "" || !strings.Contains(m.public, list[0].Key):
			return true, fmt.Errorf("the store holds %+v", list)
		}
		library, err := os.ReadFile(filepath.Join(list[0].Folder, "libtoy.so"))
		if err == nil && !bytes.Equal(library, []byte(m.folder["libtoy.so"])) {
			err = errors.New("the library is another")
		}
		return true, err
	}
	args := []string{"plugin", "install", "out/toy.tar.gz", "-q"}
	return &writing{args: args, again: args,
		prepare: func(p *place) {
			m.lay(p, m.archive, m.signature)
			if run := p.command(faults.Fault{}, "plugin", "trust", "add", "in/me.pub"); run.Code != 0 {
				p.t.Fatal(run.Stderr)
			}
		},
		whole: func(p *place, run *faults.Run) error {
			is, err := there(p)
			if err == nil && run.Code == 0 && !is {
				err = errors.New("it went well, and nothing is there")
			}
			return err
		},
		after: func(p *place, _ *faults.Run) error {
			if is, err := there(p); err != nil || !is {
				return fmt.Errorf("the plugin is there: %v, %v", is, err)
			}
			if left, _ := filepath.Glob(p.at("data", "graft", "plugins", ".staging-*")); len(left) > 0 {
				return fmt.Errorf("left %q", left)
			}
			return nil
		}}
}
