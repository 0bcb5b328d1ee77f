package library

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

func TestRead(t *testing.T) {
	path := plugintest.Build(t)
	lib := must.Value(Read(path))(t)
	sum := plugintest.SHA256(t, path)
	want := &File{
		Path: path, Size: lib.Size, SHA256: sum, Machine: runtime.GOARCH, Bits: 64, Shared: true,
		Needed: []string{"libc.so.6"},
		Entry:  EntrySymbol, Registers: true,
		Note: &Note{ABI: manifest.ABIVersion{Major: 1, Minor: 0}, Name: "toy", Version: "0.1.0", Device: "cpu", OS: "linux",
			Arch: runtime.GOARCH, ISA: []string{"baseline"}},
	}
	must.Equal(t, cmp.Diff(want, lib, cmpopts.IgnoreUnexported(File{}),
		cmpopts.IgnoreFields(File{}, "Hardening")), "")
	must.Succeed(t, lib.Check(HostABI, manifest.ThisPlatform), "check")
}

func TestUnexpectedSymbols(t *testing.T) {
	lib := must.Value(Read(plugintest.Build(t, "-fvisibility=default", "-Dtask=public_task", "-Dstatic=")))(t)
	if !strings.Contains(strings.Join(lib.Unexpected, " "), "public_task") {
		t.Errorf("unexpected symbols %q, want public_task among them", lib.Unexpected)
	}
}

func TestRefusals(t *testing.T) {
	note := func(text string) string { return `-DNOTE="` + text + `"` }
	arch := runtime.GOARCH
	patched := func(patch func([]byte)) func(testing.TB) string {
		return func(t testing.TB) string {
			data := bytes.Clone(plugintest.ReadFile(t, plugintest.Build(t)))
			patch(data)
			path := filepath.Join(t.TempDir(), "libtoy.so")
			plugintest.WriteFile(t, path, data)
			return path
		}
	}
	built := func(flags ...string) func(testing.TB) string {
		return func(t testing.TB) string { return plugintest.Build(t, flags...) }
	}
	const newer = "update graft to one that speaks ABI "
	for _, test := range []struct {
		name string
		make func(testing.TB) string
		host manifest.ABIVersion
		want string
	}{
		{"another architecture", patched(func(b []byte) { binary.LittleEndian.PutUint16(b[18:], uint16(elf.EM_PPC64)) }),
			HostABI,
			"found a library for PPC64 (64 bits, 2LSB), needed " + arch + "; install the plugin's build for linux/" + arch},
		{"executable", patched(func(b []byte) { binary.LittleEndian.PutUint16(b[16:], uint16(elf.ET_EXEC)) }), HostABI,
			"found an ELF file that is not a shared object, needed one linked with -shared; " +
				"link the plugin as a shared library"},
		{"note of a later major", built(note(`abi=2.0\nname=toy\nversion=1.0.0\ndevice=cpu\nos=linux\narch=` + arch)),
			HostABI,
			"found ABI 2.0, needed ABI 1.0; " + newer + "2, or install an older release of the plugin"},
		{"note of a later minor", built(note(`abi=1.7\nname=toy\nversion=1.0.0\ndevice=cpu\nos=linux\narch=` + arch)),
			manifest.ABIVersion{Major: 1, Minor: 3},
			"found ABI 1.7, needed ABI 1.0 to 1.3; " + newer + "1.7, or install an older release of the plugin"},
		{"note of an earlier major", built(), manifest.ABIVersion{Major: 2, Minor: 1},
			"found ABI 1.0, needed ABI 2.0 to 2.1; update the plugin to a build for ABI 2"},
		{"symbol of a later major", built("-DENTRY=graft_plugin_v2", "-DNO_NOTE"), HostABI,
			"found the symbol graft_plugin_v2, needed ABI 1.0; " + newer + "2, or install an older release of the plugin"},
		{"no symbol", built("-DNO_ENTRY"), HostABI,
			"found no symbol graft_plugin_v1, needed the entry point of a graft plugin; export it from the library " +
				"(abi/graft_plugin.h), or point at a library that is a graft plugin"},
		{"no note", built("-DNO_NOTE"), HostABI,
			"found no ELF note .note.graft, needed the note that states ABI version and device; build the plugin with the " +
				"CMake function or macro of abi/, which adds it"},
		{"note of another system", built(note(`abi=1.0\nname=toy\nversion=1.0.0\ndevice=cpu\nos=freebsd\narch=` + arch)),
			HostABI,
			"found a note for freebsd/" + arch + ", needed linux/" + arch + "; install the plugin's build for linux/" + arch},
		{"no registration", built("-DNO_REGISTER"), HostABI,
			"found no symbol RegisterCustomOps, needed ONNX Runtime's registration function; export it from the library; the " +
				"kits define it"},
		{"link to the runtime", func(t testing.TB) string {
			folder := t.TempDir()
			plugintest.Compile(t, filepath.Join(folder, "libonnxruntime.so"), "-x", "c", "/dev/null",
				"-Wl,-soname,libonnxruntime.so.1")
			return plugintest.Build(t, "-L"+folder, "-Wl,--no-as-needed", "-lonnxruntime")
		}, HostABI,
			"found a link to libonnxruntime.so.1, needed a plugin without it; take it off the link line: the host passes " +
				"ONNX Runtime's API in, and the driver is opened at run time"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := test.make(t)
			lib, err := Read(path)
			if err == nil {
				err = lib.Check(test.host, manifest.ThisPlatform)
			}
			must.FailExactly(t, err, path+": "+test.want)
			must.Fail(t, err, refusal.ErrIncompatible)
		})
	}
}

func TestReadDamaged(t *testing.T) {
	whole := plugintest.ReadFile(t, plugintest.Build(t))
	path := filepath.Join(t.TempDir(), "libtoy.so")
	refused := func(data []byte) string {
		plugintest.WriteFile(t, path, data)
		lib, err := Read(path)
		if err == nil {
			err = lib.Check(HostABI, manifest.ThisPlatform)
		}
		if err == nil {
			return ""
		}
		if !errors.Is(err, refusal.ErrIncompatible) || !strings.HasPrefix(err.Error(), path+": found ") {
			t.Errorf("error %v, want one of kind ErrIncompatible that names the path", err)
		}
		return err.Error()
	}
	// The section headers stand at the end, so any cut loses them.
	for n := 0; n < len(whole); n += len(whole)/40 + 1 {
		if refused(whole[:n]) == "" {
			t.Errorf("a library cut to %d of %d bytes is accepted", n, len(whole))
		}
	}
	if got := refused([]byte("#!/bin/sh\n")); !strings.Contains(got,
		`found a file that begins with "#!/b", needed an ELF shared library (.so)`) {
		t.Errorf("a script: %s", got)
	}
	// Single flipped bits in the headers and tables must never bring the reader down.
	for i := range 512 {
		data := bytes.Clone(whole)
		data[i*7%len(data)] ^= 1 << (i % 8)
		refused(data)
	}
	folder := t.TempDir()
	must.FailExactly(t, must.Error(Read(folder)), folder+": found a folder, needed a shared library")
	must.Fail(t, must.Error(Read(filepath.Join(folder, "no.so"))), refusal.ErrNotFound, os.ErrNotExist)
}

func TestAgree(t *testing.T) {
	lib := must.Value(Read(plugintest.Build(t)))(t)
	variant := &manifest.Variant{Device: "cpu", OS: "linux", Arch: runtime.GOARCH, File: "libtoy.so"}
	manifest := &manifest.Manifest{Name: "toy", Version: "0.1.0", ABI: manifest.ABIVersion{Major: 1, Minor: 0}}
	must.Succeed(t, lib.Agree(manifest, variant), "the same")
	manifest.Version = "0.2.0"
	want := lib.Path +
		`: found version "0.1.0" in its ELF note, needed "0.2.0" as in plugin.yaml; build the library and the manifest from the same source`
	must.FailExactly(t, lib.Agree(manifest, variant), want)
}

// note builds the bytes of one ELF note.
func note(owner string, kind uint32, payload string) []byte {
	pad := func(b []byte) []byte { return append(b, make([]byte, (4-len(b)%4)%4)...) }
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(owner)+1))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(payload)))
	b = binary.LittleEndian.AppendUint32(b, kind)
	b = pad(append(b, owner+"\x00"...))
	return pad(append(b, payload...))
}

const cudaNote = "abi=1.0\nname=n\nversion=1.0.0\ndevice=cuda\nos=linux\narch=amd64\nsm=90,100\ncuda=13\nnovelty=x\n"

func TestParseNote(t *testing.T) {
	valid := note("graft", 1, cudaNote)
	for _, test := range []struct {
		name string
		data []byte
		want string // error text, or "found", or "none"
	}{
		{"empty", nil, "none"},
		{"of others", note("GNU", 3, "1234"), "none"},
		{"after others", append(note("GNU", 3, "123"), valid...), "found"},
		{"of another type", note("graft", 2, "1234"), "none"},
		{"without the last padding", bytes.TrimRight(valid, "\x00"), "found"},
		{"short head", valid[:7], "found 7 bytes where an ELF note begins, needed at least 12"},
		{"cut", valid[:40], "found an ELF note whose payload has 89 bytes with 20 left in the section"},
		{"huge name", []byte("\xff\xff\xff\xff\x00\x00\x00\x00\x01\x00\x00\x00"),
			"found an ELF note whose name has 4294967295 bytes with 0 left in the section"},
		{"huge section", make([]byte, maxNoteBytes+1), "found a note section of 65537 bytes, needed at most 65536"},
		{"no name", note("graft", 1, "abi=1.0\n"), "found no name in the graft note"},
		{"no key", note("graft", 1, "hello"), `found the line "hello" in the graft note, needed key=value`},
		{"twice", note("graft", 1, "abi=1.0\nabi=1.0\n"), "found abi twice in the graft note"},
		{"not UTF-8", note("graft", 1, "abi=\xff\n"), "found a graft note that is not UTF-8"},
		{"control character", note("graft", 1, "abi=1\x1b[2J\n"), "found a control character in abi of the graft note"},
		{"bad ABI", note("graft", 1, strings.Replace(cudaNote, "1.0", "1", 1)),
			`graft note: found ABI version "1", needed major.minor such as "1.0"`},
		{"bad device", note("graft", 1, strings.Replace(cudaNote, "cuda", "abacus", 1)),
			`found device "abacus" in the graft note, needed one of cpu, cuda`},
	} {
		t.Run(test.name, func(t *testing.T) {
			n, found, err := ParseNote(test.data, binary.LittleEndian)
			got := "none"
			if err != nil {
				got = err.Error()
			} else if found {
				got = "found"
				want := &Note{ABI: manifest.ABIVersion{Major: 1, Minor: 0}, Name: "n", Version: "1.0.0", Device: "cuda",
					OS: "linux", Arch: "amd64",
					SM: []string{"90", "100"}, CUDA: "13", Other: map[string]string{"novelty": "x"}}
				must.Equal(t, cmp.Diff(want, n), "")
			}
			must.Equal(t, got, test.want)
		})
	}
}
