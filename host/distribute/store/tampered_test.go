package store

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/opgraft/graft/host/distribute/archive"
	"github.com/opgraft/graft/host/distribute/signing"
	authors "github.com/opgraft/graft/host/distribute/signing/signingtest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/verification"
	"github.com/opgraft/graft/internal/must"
)

// artifact is what someone in between can change: an archive and its signature.
type artifact struct{ archive, signature []byte }

// tampering is one way of it.
type tampering struct {
	name   string
	change func(*artifact)
}

// Whatever is changed of an archive, of its signature, or of the file of trusted keys, the installation is refused,
// and not a byte of what is installed, recorded or trusted is another. An archive that a trusted key did sign is
// refused for what is in it.
func TestTampered(t *testing.T) {
	data, sources := filepath.Join(t.TempDir(), "data"), t.TempDir()
	s := At(data)
	author, stranger := authors.New(t), authors.New(t)
	author.Trust(t, data)
	path := filepath.Join(sources, "toy-0.1.0.tar.gz")
	from := source(t)
	write := func(data []byte, by *authors.Author, name, version string) artifact {
		plugintest.WriteFile(t, path, data)
		by.Sign(t, path, name, version)
		return artifact{data, plugintest.ReadFile(t, path+signing.Suffix)}
	}
	var packed bytes.Buffer
	must.Succeed(t, archive.Pack(&packed, from))
	good := write(packed.Bytes(), author, "toy", "0.1.0")
	if in, err := s.Install(context.Background(), path, verification.Options{}); err != nil ||
		in.Key != author.Key.String() || in.Unsigned {
		t.Fatalf("as its author made it: %+v, %v", in, err)
	}
	before := tree(t, data)
	refused := 0
	refuse := func(name string, a artifact, opts verification.Options, kinds ...error) {
		t.Helper()
		plugintest.WriteFile(t, path, a.archive)
		os.RemoveAll(path + signing.Suffix)
		if a.signature != nil {
			plugintest.WriteFile(t, path+signing.Suffix, a.signature)
		}
		_, err := s.Install(context.Background(), path, opts)
		switch {
		case err == nil:
			t.Errorf("%s: installed", name)
		case !slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) }):
			t.Errorf("%s: an error of another kind: %v", name, err)
		case !strings.HasPrefix(err.Error(), path) && !strings.HasPrefix(err.Error(), data):
			t.Errorf("%s: an error without its path: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), stagingPrefix) {
			t.Errorf("%s: the error speaks of a folder that is gone: %v", name, err)
		}
		if diff := difference(before, tree(t, data)); diff != "" {
			t.Fatalf("%s: %s", name, diff)
		}
		refused++
	}

	// A changed archive is never unpacked: what is said of it is said of its signature.
	for _, k := range slices.Concat(ofArchive(t, from, good), ofSignature(t, good)) {
		changed := artifact{bytes.Clone(good.archive), bytes.Clone(good.signature)}
		if k.change(&changed); bytes.Equal(changed.archive, good.archive) && bytes.Equal(changed.signature, good.signature) {
			t.Fatalf("%s changes nothing", k.name)
		}
		refuse(k.name, changed, verification.Options{}, signing.ErrSignature, signing.ErrUntrusted)
	}
	for name, a := range map[string]artifact{
		"no signature":                  {good.archive, nil},
		"another's signature":           write(good.archive, stranger, "toy", "0.1.0"),
		"signed as another plugin":      write(good.archive, author, "yot", "0.1.0"),
		"signed as another version":     write(good.archive, author, "toy", "0.2.0"),
		"signed as nothing":             write(good.archive, author, "", ""),
		"signed as a name with a tab":   write(good.archive, author, "toy\tplugin:toy", "0.1.0"),
		"the signature of another file": {good.archive, write([]byte("other"), author, "toy", "0.1.0").signature},
	} {
		refuse(name, a, verification.Options{}, signing.ErrSignature, signing.ErrUntrusted)
	}
	// The word that no signature is needed is none that a wrong one is right.
	for _, k := range ofSignature(t, good) {
		changed := artifact{good.archive, bytes.Clone(good.signature)}
		k.change(&changed)
		if !strings.Contains(k.name, "key's ID") {
			refuse("allowed unsigned, "+k.name, changed, verification.Options{AllowUnsigned: true}, signing.ErrSignature)
		}
	}
	// What a trusted author signed may still not be a plugin.
	for name, entries := range hostileEntries(t, from) {
		refuse("signed, "+name, write(plugintest.Gzip(t, plugintest.Tar(t, entries)), author, "toy", "0.1.0"),
			verification.Options{},
			refusal.ErrArchive, refusal.ErrManifest, refusal.ErrNotFound, refusal.ErrIncompatible, refusal.ErrStore,
			signing.ErrSignature)
	}
	for name, change := range ofKeys(t, author, stranger, filepath.Join(data, signing.FileName)) {
		undo := change()
		before = tree(t, data)
		refuse(name, good, verification.Options{}, signing.ErrKey, signing.ErrSignature, signing.ErrUntrusted,
			refusal.ErrVerification)
		undo()
		before = tree(t, data)
	}
	t.Logf("%d kinds of tampering", refused)
	if refused < 200 {
		t.Errorf("%d kinds, want 200 or more", refused)
	}
	plugintest.WriteFile(t, path, good.archive)
	plugintest.WriteFile(t, path+signing.Suffix, good.signature)
	must.Value(s.Install(context.Background(), path, verification.Options{}))(t, "as its author made it, afterwards")
}

// tree is all below a folder, with its modes.
func tree(t *testing.T, folder string) map[string]string {
	t.Helper()
	out := map[string]string{}
	must.Succeed(t, filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		text := info.Mode().String()
		if e.Type().IsRegular() {
			text += string(plugintest.ReadFile(t, path))
		}
		out[path] = text
		return nil
	}))
	return out
}

func difference(a, b map[string]string) string {
	for _, path := range slices.Sorted(maps.Keys(a)) {
		if now, there := b[path]; !there || now != a[path] {
			return path + " was changed"
		}
	}
	for _, path := range slices.Sorted(maps.Keys(b)) {
		if _, there := a[path]; !there {
			return path + " was written"
		}
	}
	return ""
}

// ofArchive are changes of an archive under a signature that stays.
func ofArchive(t *testing.T, from string, good artifact) (list []tampering) {
	add := func(name string, change func(*artifact)) { list = append(list, tampering{name, change}) }
	size := len(good.archive)
	flip := func(name string, at int) {
		add(fmt.Sprintf("%s, byte %d", name, at), func(a *artifact) { a.archive[at] ^= 0x10 })
	}
	for at := range 10 {
		flip("header of gzip", at)
	}
	for at := size - 8; at < size; at++ {
		flip("trailer of gzip", at)
	}
	for i := range 32 {
		flip("compressed", 10+i*(size-18)/32)
	}
	for _, n := range []int{0, 1, 9, 10, 11, 512, size / 2, size - 9, size - 8, size - 4, size - 1} {
		add(fmt.Sprintf("cut to %d", n), func(a *artifact) { a.archive = a.archive[:n] })
	}
	for name, more := range map[string][]byte{"a zero": {0}, "a kilobyte of zeros": make([]byte, 1024),
		"garbage": []byte("garbage"), "another member": plugintest.Gzip(t, []byte("more")),
		"itself": good.archive, "its signature": good.signature} {
		add("followed by "+name, func(a *artifact) { a.archive = append(a.archive, more...) })
	}
	entries := plugintest.Entries(t, from, "")
	packed := func(name string, change func([]byte)) {
		add(name, func(a *artifact) {
			data := plugintest.Tar(t, entries)
			change(data)
			a.archive = plugintest.Gzip(t, data)
		})
	}
	packed("another packing", func([]byte) {})
	fields := []struct {
		name     string
		at, size int
	}{{"name", 0, 100}, {"mode", 100, 8}, {"uid", 108, 8}, {"gid", 116, 8}, {"size", 124, 12}, {"mtime", 136, 12},
		{"typeflag", 156, 1}, {"linkname", 157, 100}, {"magic", 257, 6},
		{"version", 263, 2}, {"uname", 265, 32}, {"gname", 297, 32}, {"devmajor", 329, 8}, {"devminor", 337, 8},
		{"prefix", 345, 155}, {"padding", 500, 12}}
	header := 0
	for _, e := range entries {
		for _, f := range fields {
			packed(e.Name+"'s "+f.name, func(data []byte) {
				block := data[header : header+512]
				for i := range f.size {
					block[f.at+i] ^= 0x01
				}
				sum(block)
			})
		}
		packed(e.Name+"'s checksum", func(data []byte) { data[header+149] ^= 1 })
		header += 512 + (len(e.Data)+511)/512*512
	}
	content := func(file, name string, change func([]byte) []byte) {
		add(file+": "+name, func(a *artifact) {
			changed := slices.Clone(entries)
			i := slices.IndexFunc(changed, func(e plugintest.Entry) bool { return e.Name == file })
			changed[i].Data = change(bytes.Clone(changed[i].Data))
			a.archive = plugintest.Gzip(t, plugintest.Tar(t, changed))
		})
	}
	lines := bytes.SplitAfter(plugintest.ReadFile(t, filepath.Join(from, "plugin.yaml")), []byte("\n"))
	for i := range lines {
		if len(lines[i]) == 0 {
			continue
		}
		content("plugin.yaml", fmt.Sprintf("without line %d", i+1),
			func([]byte) []byte { return bytes.Join(slices.Delete(slices.Clone(lines), i, i+1), nil) })
		content("plugin.yaml", fmt.Sprintf("line %d changed", i+1), func([]byte) []byte {
			changed := slices.Clone(lines)
			changed[i] = append(bytes.TrimRight(bytes.Clone(changed[i]), "\n"), "0\n"...)
			return bytes.Join(changed, nil)
		})
	}
	library := plugintest.ReadFile(t, filepath.Join(from, "libtoy.so"))
	for at := range 16 {
		content("libtoy.so", fmt.Sprintf("ELF byte %d", 4+at*4), func(b []byte) []byte { b[4+at*4] ^= 1; return b })
	}
	for i := range 24 {
		at := 64 + i*(len(library)-64)/24
		content("libtoy.so", fmt.Sprintf("byte %d", at), func(b []byte) []byte { b[at] ^= 1; return b })
	}
	content("libtoy.so", "longer", func(b []byte) []byte { return append(b, 0) })
	content("libtoy.so", "shorter", func(b []byte) []byte { return b[:len(b)-1] })
	content("libtoy.so", "empty", func(b []byte) []byte { return nil })
	for name, other := range hostileEntries(t, from) {
		add("with "+name, func(a *artifact) { a.archive = plugintest.Gzip(t, plugintest.Tar(t, other)) })
	}
	return list
}

// sum corrects the checksum of a header of tar.
func sum(block []byte) {
	copy(block[148:156], "        ")
	total := 0
	for _, c := range block {
		total += int(c)
	}
	copy(block[148:], fmt.Sprintf("%06o\x00 ", total))
}

// hostileEntries are archives that nobody may unpack, or whose plugin no host would load.
func hostileEntries(t *testing.T, from string) map[string][]plugintest.Entry {
	toy := plugintest.Entries(t, from, "")
	with := func(e ...plugintest.Entry) []plugintest.Entry { return append(slices.Clone(toy), e...) }
	instead := func(name string, e plugintest.Entry) []plugintest.Entry {
		out := slices.Clone(toy)
		e.Name = name
		out[slices.IndexFunc(out, func(e plugintest.Entry) bool { return e.Name == name })] = e
		return out
	}
	data := []byte("x")
	list := map[string][]plugintest.Entry{
		"nothing": {},
		"no manifest": slices.DeleteFunc(slices.Clone(toy),
			func(e plugintest.Entry) bool { return e.Name == "plugin.yaml" }),
		"no library": slices.DeleteFunc(slices.Clone(toy),
			func(e plugintest.Entry) bool { return e.Name == "libtoy.so" }),
		"a path above":              with(plugintest.Entry{Name: "../evil", Data: data}),
		"a path above, from inside": with(plugintest.Entry{Name: "a/../../evil", Data: data}),
		"an absolute path":          with(plugintest.Entry{Name: "/tmp/evil", Data: data}),
		"a path of dots":            with(plugintest.Entry{Name: "./../evil", Data: data}),
		"a path with a backslash":   with(plugintest.Entry{Name: `..\evil`, Data: data}),
		"a path with an empty part": with(plugintest.Entry{Name: "a//b", Data: data}),
		"a name that is too long":   with(plugintest.Entry{Name: strings.Repeat("n", 2000), Data: data}),
		"folders without end":       with(plugintest.Entry{Name: strings.Repeat("d/", 40) + "f", Data: data}),
		"a link out":                with(plugintest.Entry{Name: "link", Kind: tar.TypeSymlink, Link: "/etc/passwd"}),
		"a link to what is above": with(
			plugintest.Entry{Name: "link", Kind: tar.TypeSymlink, Link: "../../../verified.json"}),
		"a link inside": with(plugintest.Entry{Name: "link", Kind: tar.TypeSymlink, Link: "libtoy.so"}),
		"a file through a link": with(plugintest.Entry{Name: "d", Kind: tar.TypeSymlink, Link: "/tmp"},
			plugintest.Entry{Name: "d/evil", Data: data}),
		"a hard link out":               with(plugintest.Entry{Name: "link", Kind: tar.TypeLink, Link: "/etc/passwd"}),
		"a hard link inside":            with(plugintest.Entry{Name: "link", Kind: tar.TypeLink, Link: "libtoy.so"}),
		"a device of characters":        with(plugintest.Entry{Name: "null", Kind: tar.TypeChar}),
		"a device of blocks":            with(plugintest.Entry{Name: "disk", Kind: tar.TypeBlock}),
		"a named pipe":                  with(plugintest.Entry{Name: "pipe", Kind: tar.TypeFifo}),
		"a contiguous file":             with(plugintest.Entry{Name: "cont", Kind: '7'}),
		"a kind that nobody knows":      with(plugintest.Entry{Name: "what", Kind: 'Z'}),
		"a file twice":                  with(plugintest.Entry{Name: "libtoy.so", Data: data}),
		"a file twice, in another form": with(plugintest.Entry{Name: "./libtoy.so", Data: data}),
		"a manifest twice":              with(plugintest.Entry{Name: "plugin.yaml", Data: data}),
		"a file that is a folder":       with(plugintest.Entry{Name: "libtoy.so/x", Data: data}),
		"a bomb":                        with(plugintest.Entry{Name: "zeros", Data: make([]byte, 8<<20)}),
		"a library that is a link": instead("libtoy.so",
			plugintest.Entry{Kind: tar.TypeSymlink, Link: "/lib/x86_64-linux-gnu/libc.so.6"}),
		"a library that is a pipe":   instead("libtoy.so", plugintest.Entry{Kind: tar.TypeFifo}),
		"a library that is a device": instead("libtoy.so", plugintest.Entry{Kind: tar.TypeChar}),
		"a library that is text":     instead("libtoy.so", plugintest.Entry{Data: []byte("#!/bin/sh\n")}),
		"a library that is empty":    instead("libtoy.so", plugintest.Entry{}),
		"a manifest that is a link": instead("plugin.yaml",
			plugintest.Entry{Kind: tar.TypeSymlink, Link: "../toy/plugin.yaml"}),
		"a manifest that is empty": instead("plugin.yaml", plugintest.Entry{}),
		"a manifest of another name": instead("plugin.yaml",
			plugintest.Entry{Data: []byte(strings.Replace(plugintest.Manifest, "name: toy", "name: other", 1))}),
		"a manifest of another version": instead("plugin.yaml",
			plugintest.Entry{Data: []byte(strings.Replace(plugintest.Manifest, "version: 0.1.0", "version: 0.2.0", 1))}),
		"a manifest of an older version": instead("plugin.yaml",
			plugintest.Entry{Data: []byte(strings.Replace(plugintest.Manifest, "version: 0.1.0", "version: 0.0.9", 1))}),
		"a manifest with a path": instead("plugin.yaml",
			plugintest.Entry{Data: []byte(strings.Replace(plugintest.Manifest, "libtoy.so", "../libtoy.so", 1))}),
		"a manifest of aliases": instead("plugin.yaml",
			plugintest.Entry{Data: []byte(
				"a: &a [x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b]\nd: [*c,*c,*c,*c,*c,*c]\n")}),
		"two plugins": append(plugintest.Entries(t, from, "a/"), plugintest.Entries(t, from, "b/")...),
	}
	for i := range 1100 {
		list["too many files"] = append(list["too many files"], plugintest.Entry{Name: fmt.Sprint("f", i)})
	}
	return list
}

// ofSignature are changes of the signature of an archive that stays.
func ofSignature(t *testing.T, good artifact) (list []tampering) {
	lines := strings.Split(strings.TrimSuffix(string(good.signature), "\n"), "\n")
	if len(lines) != 4 {
		t.Fatalf("found a signature of %d lines", len(lines))
	}
	to := func(name string, changed ...string) {
		list = append(list, tampering{"signature: " + name,
			func(a *artifact) { a.signature = []byte(strings.Join(changed, "\n") + "\n") }})
	}
	line := func(name string, i int, text string) {
		changed := slices.Clone(lines)
		changed[i] = text
		to(name, changed...)
	}
	for _, part := range []struct {
		name     string
		line     int
		from, to int
	}{{"algorithm", 1, 0, 2}, {"key's ID", 1, 2, 10}, {"ed25519 over the archive", 1, 10, 74},
		{"ed25519 over the comment", 3, 0, 64}} {
		raw := must.Value(base64.StdEncoding.DecodeString(lines[part.line]))(t)
		for at := part.from; at < part.to; at++ {
			changed := bytes.Clone(raw)
			changed[at] ^= 0x20 // of ED and of Ed too
			line(fmt.Sprintf("%s, byte %d", part.name, at), part.line, base64.StdEncoding.EncodeToString(changed))
		}
	}
	for i, text := range lines {
		to(fmt.Sprintf("without line %d", i+1), slices.Delete(slices.Clone(lines), i, i+1)...)
		to(fmt.Sprintf("line %d twice", i+1), slices.Insert(slices.Clone(lines), i, text)...)
		line(fmt.Sprintf("line %d empty", i+1), i, "")
		line(fmt.Sprintf("line %d with the end of Windows", i+1), i, text+"\r")
		if i%2 == 1 {
			line(fmt.Sprintf("line %d in two", i+1), i, text[:8]+"\n"+text[8:])
			line(fmt.Sprintf("line %d with a carriage return inside", i+1), i, text[:8]+"\r"+text[8:])
			line(fmt.Sprintf("line %d without padding", i+1), i, strings.TrimRight(text, "="))
			line(fmt.Sprintf("line %d with bits that nobody reads", i+1), i, unread(text))
			line(fmt.Sprintf("line %d of other letters", i+1), i, "*"+text[1:])
			line(fmt.Sprintf("line %d cut", i+1), i, text[:len(text)-4])
		}
	}
	comment := lines[2]
	for _, c := range []string{strings.Replace(comment, "0.1.0", "0.2.0", 1), strings.Replace(comment, "toy", "yot", 1),
		comment + "\tplugin:toy", comment + " ", strings.ReplaceAll(comment, "\t", " "), "trusted comment: ",
		"trusted comment:", strings.ToUpper(comment)} {
		line("the comment "+c, 2, c)
	}
	to("lines swapped", lines[0], lines[3], lines[2], lines[1])
	to("more at the end", append(slices.Clone(lines), "more")...)
	list = append(list, tampering{"signature: empty", func(a *artifact) { a.signature = []byte{} }},
		tampering{"signature: huge", func(a *artifact) { a.signature = append(a.signature, make([]byte, 1<<20)...) }},
		tampering{"signature: without the last end of a line",
			func(a *artifact) { a.signature = bytes.TrimSuffix(a.signature, []byte("\n")) }},
		tampering{"signature: the archive", func(a *artifact) { a.signature = a.archive }},
		tampering{"signature: zeros", func(a *artifact) { a.signature = make([]byte, len(a.signature)) }})
	return list
}

// unread is base64 whose last letter before its padding has bits that decoders drop.
func unread(text string) string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	at := strings.IndexByte(text, '=') - 1
	return text[:at] + string(letters[strings.IndexByte(letters, text[at])|1]) + text[at+1:]
}

// ofKeys are changes of the file of trusted keys, each of which gives what undoes it.
func ofKeys(t *testing.T, author, stranger *authors.Author, path string) map[string]func() func() {
	was := plugintest.ReadFile(t, path)
	undo := func() {
		must.Succeed(t, errors.Join(os.RemoveAll(path), os.WriteFile(path, was, 0o644)))
	}
	list := map[string]func() func(){}
	text := func(name, to string) {
		list["keys: "+name] = func() func() { plugintest.WriteFile(t, path, []byte(to)); return undo }
	}
	must := func(err error) {
		must.Succeed(t, err)
	}
	key, id := author.Key.String(), author.Key.ID()
	for at := 0; at < len(key); at++ {
		other := byte('A')
		if key[at] == other {
			other = 'B'
		}
		text(fmt.Sprintf("letter %d of the key", at), strings.Replace(string(was), key, key[:at]+string(other)+key[at+1:], 1))
	}
	text("another key", strings.Replace(string(was), key, stranger.Key.String(), 1))
	text("another key with its ID",
		strings.NewReplacer(key, stranger.Key.String(), id, stranger.Key.ID()).Replace(string(was)))
	text("another ID", strings.Replace(string(was), id, "0000000000000000", 1))
	text("the key twice", strings.Replace(string(was), `"keys": [`,
		`"keys": [{"key": "`+key+`", "id": "`+id+`", "added": "2026-01-01T00:00:00Z"},`, 1))
	text("another schema", strings.Replace(string(was), `"schema_version": 1`, `"schema_version": 9`, 1))
	text("a member more", strings.Replace(string(was), `"id"`, `"all": true, "id"`, 1))
	text("an end before it", string(was[:len(was)/2]))
	text("more after its end", string(was)+"{}")
	text("nothing", "")
	text("no keys", `{"schema_version": 1, "keys": []}`)
	text("for another plugin", strings.Replace(string(was), `"id"`, `"plugins": ["other"], "id"`, 1))
	text("for no name", strings.Replace(string(was), `"id"`, `"plugins": ["../x"], "id"`, 1))
	text("a name that rings", strings.Replace(string(was), `"author"`, `"a\u0007"`, 1))
	text("too large", string(was)+strings.Repeat(" ", 2<<20))
	list["keys: gone"] = func() func() { must(os.Remove(path)); return undo }
	list["keys: written by others"] = func() func() { must(os.Chmod(path, 0o666)); return undo }
	list["keys: written by a group"] = func() func() { must(os.Chmod(path, 0o664)); return undo }
	list["keys: a folder"] = func() func() { must(errors.Join(os.Remove(path), os.Mkdir(path, 0o755))); return undo }
	list["keys: a pipe"] = func() func() { must(errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o644))); return undo }
	list["keys: a link"] = func() func() {
		at := filepath.Join(t.TempDir(), "keys")
		plugintest.WriteFile(t, at, was)
		must(errors.Join(os.Remove(path), os.Symlink(at, path)))
		return undo
	}
	if os.Geteuid() == 0 {
		list["keys: another user's"] = func() func() { must(os.Chown(path, 12345, 0)); return undo }
	}
	return list
}
