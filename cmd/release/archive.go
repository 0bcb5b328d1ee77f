package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// files are those of a package by their paths in it, with slashes.
type files map[string]entry

// entry is a file of a package.
type entry struct {
	data       []byte
	executable bool
}

func (e entry) mode() os.FileMode {
	if e.executable {
		return 0o755
	}
	return 0o644
}

// add reads a file of this machine.
func (f files) add(name, from string, executable bool) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	f[name] = entry{data, executable}
	return nil
}

// tarred is a tar file in which everything is of one time and root's. Folders are listed where they are wanted.
func tarred(list files, folders bool, at time.Time) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	made := map[string]bool{".": true}
	var make func(folder string) error
	make = func(folder string) error {
		if !folders || made[folder] {
			return nil
		}
		if err := make(path.Dir(folder)); err != nil {
			return err
		}
		made[folder] = true
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: folder + "/", Mode: 0o755, ModTime: at,
			Format: tar.FormatUSTAR})
	}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		e := list[name]
		if err := make(path.Dir(name)); err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(e.data)),
			Mode: int64(e.mode()), ModTime: at, Format: tar.FormatUSTAR}); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.data); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// tarball writes a compressed tar file.
func tarball(to string, list files, at time.Time) error {
	data, err := tarred(list, false, at)
	if err != nil {
		return err
	}
	packed, err := compressed(data)
	if err != nil {
		return err
	}
	return write(to, packed)
}

// zipped writes a zip file in the order of names, those of last at its end.
func zipped(to string, list files, last []string, at time.Time) error {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(list)),
		func(name string) bool { return slices.Contains(last, name) })
	for _, name := range append(names, last...) {
		h := &zip.FileHeader{Name: name, Method: zip.Deflate, Modified: at}
		h.SetMode(list[name].mode())
		f, err := w.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := f.Write(list[name].data); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return write(to, b.Bytes())
}

// installed are the files of a system's installation, below a prefix such as "usr/".
func (r *release) installed(p platform, prefix, doc string) (files, error) {
	list := files{}
	if err := list.add(prefix+"bin/graft", r.built(p), true); err != nil {
		return nil, err
	}
	if own := r.library(p); own != "" {
		if err := list.add(prefix+"lib/graft/libgraft.so", own, false); err != nil {
			return nil, err
		}
	}
	for name, from := range map[string]string{"LICENSE": filepath.Join(r.sources, "LICENSE"),
		licences: filepath.Join(r.work, licences), "README.md": filepath.Join(r.sources, "README.md"),
		"CHANGELOG.md": filepath.Join(r.sources, "CHANGELOG.md")} {
		if err := list.add(doc+name, from, false); err != nil {
			return nil, err
		}
	}
	for shell, to := range map[string]string{"bash": "share/bash-completion/completions/graft",
		"zsh": "share/zsh/site-functions/_graft", "fish": "share/fish/vendor_completions.d/graft.fish"} {
		text, err := r.host("completion", shell)
		if err != nil {
			return nil, err
		}
		list[prefix+to] = entry{data: []byte(text + "\n")}
	}
	pages, err := r.manual()
	if err != nil {
		return nil, err
	}
	for name, page := range pages {
		packed, err := compressed(page)
		if err != nil {
			return nil, err
		}
		list[prefix+"share/man/man1/"+name+".gz"] = entry{data: packed}
	}
	return list, nil
}

// manual are the pages for man.
func (r *release) manual() (map[string][]byte, error) {
	folder := filepath.Join(r.work, "man")
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	if _, err := r.host("man", folder); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	pages := map[string][]byte{}
	for _, e := range entries {
		if pages[e.Name()], err = os.ReadFile(filepath.Join(folder, e.Name())); err != nil {
			return nil, err
		}
	}
	return pages, nil
}

// host runs the graft that was built for this machine, which runs it alone.
func (r *release) host(args ...string) (string, error) {
	for _, p := range r.platforms {
		if p.goarch == hostArch {
			return r.command("", nil, r.built(p), args...)
		}
	}
	return "", fmt.Errorf("-platforms: needed %s among them, whose graft writes the manual", hostArch)
}

// archives writes what anyone unpacks where they like.
func (r *release) archives() error {
	for _, p := range r.platforms {
		top := fmt.Sprintf("graft-%s-linux-%s", r.version, p.goarch)
		list, err := r.installed(p, top+"/", top+"/")
		if err != nil {
			return err
		}
		if err := tarball(filepath.Join(r.out, top+".tar.gz"), list, r.date); err != nil {
			return err
		}
	}
	return nil
}

// sums writes the hashes of all files, and the script that checks what it installs by them.
func (r *release) sums() error {
	script, err := os.ReadFile(filepath.Join(r.sources, "cmd/release/install.sh"))
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(string(script), "@VERSION@", r.version)
	if err := write(filepath.Join(r.out, "install.sh"), []byte(text)); err != nil {
		return err
	}
	var lines []string
	err = filepath.WalkDir(r.out, func(at string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		f, err := os.Open(at)
		if err != nil {
			return err
		}
		defer f.Close()
		h := sha256.New()
		if _, err := io.Copy(h, f); err != nil {
			return err
		}
		name, err := filepath.Rel(r.out, at)
		lines = append(lines, hex.EncodeToString(h.Sum(nil))+"  "+filepath.ToSlash(name)+"\n")
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return write(filepath.Join(r.out, "SHA256SUMS"), []byte(strings.Join(lines, "")))
}
