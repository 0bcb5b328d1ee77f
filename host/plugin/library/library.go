// Package library reads what a plugin's shared library says about itself, in its ELF file and in graft's
// note, without running any of it.
package library

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/storage"
	"github.com/opgraft/graft/host/plugin/embedded"
	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/host/plugin/sealed"
)

// HostABI is the version of graft_plugin.h that this host speaks.
var HostABI = manifest.ABIVersion{Major: 1, Minor: 0}

// The symbols that a plugin exports. Any others are listed by File.Unexpected: a version script should
// hide them, or two plugins in one process may bind to each other's code.
const (
	EntrySymbol    = "graft_plugin_v1"
	RegisterSymbol = "RegisterCustomOps"
)

// Limits of what is read of a library.
const (
	maxLibraryBytes = 2 << 30
	maxSymbolBytes  = 16 << 20 // .dynsym and .dynstr
	maxListed       = 16       // names listed in messages and in Unexpected
)

// File is what an ELF file says about itself. Nothing in it has run.
type File struct {
	Path       string   `json:"path"`
	Size       int64    `json:"size"`
	SHA256     string   `json:"-"`               // in hexadecimal, of the bytes that all of this was read of
	Machine    string   `json:"machine"`         // GOARCH where Go has one, else the ELF name
	Bits       int      `json:"bits"`            // 32 or 64
	Shared     bool     `json:"shared"`          // of type ET_DYN
	Needed     []string `json:"needed"`          // DT_NEEDED, as the system's loader reads it
	Entry      string   `json:"entry,omitempty"` // the graft_plugin_v* symbol
	Registers  bool     `json:"registers"`       // exports RegisterCustomOps
	Unexpected []string `json:"unexpected,omitempty"`
	Note       *Note    `json:"note,omitempty"`

	Hardening Hardening `json:"hardening"`

	refused []refusedPart
}

// goArch gives the GOARCH of little-endian 64-bit machines; others keep their ELF name.
var goArch = map[elf.Machine]string{
	elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64", elf.EM_RISCV: "riscv64", elf.EM_LOONGARCH: "loong64",
}

var entryPattern = regexp.MustCompile(`^graft_plugin_v(\d{1,5})$`)

// Read reads the ELF file at path without running any of it. A file that is not an ELF file, or
// a damaged one, is an *diagnostic.Error of kind ErrIncompatible.
func Read(path string) (*File, error) {
	lib, content, err := Seal(path)
	if err != nil {
		return nil, err
	}
	return lib, content.Close()
}

// builtOf is where graft plugin build put a library whose sources lie in the folder of path, or empty.
func builtOf(path string) string {
	builds, name := filepath.Join(filepath.Dir(path), "build"), filepath.Base(path)
	entries, err := os.ReadDir(builds)
	if err != nil {
		return ""
	}
	for _, e := range entries {
		folder := filepath.Join(builds, e.Name())
		if _, err := os.Stat(filepath.Join(folder, name)); err == nil && manifest.Exists(folder) {
			return folder
		}
	}
	return ""
}

// Seal is Read, and gives the bytes that were read, for loading them. The caller closes them.
func Seal(path string) (*File, *sealed.File, error) {
	content, err := seal(path)
	if err != nil {
		return nil, nil, err
	}
	lib, err := readELF(path, content, content.Size)
	if err != nil {
		content.Close()
		return nil, nil, err
	}
	lib.SHA256 = content.SHA256
	return lib, content, nil
}

// seal reads a file, or one inside of the program.
func seal(path string) (*sealed.File, error) {
	if data, inside, err := embedded.Read(path); inside {
		if err == nil {
			var content *sealed.File
			if content, err = sealed.From(filepath.Base(path), data); err == nil {
				return content, nil
			}
		}
		return nil, refusal.Store(path, "cannot read the program's own plugin", err)
	}
	info, err := os.Stat(path)
	if err != nil {
		absent := &diagnostic.Error{Kind: refusal.ErrNotFound, Path: path, Found: "no such file", Needed: "a shared library",
			Fix: "correct the file name in " + manifest.FileName + " or build the library", Cause: err}
		if folder := builtOf(path); folder != "" {
			absent.Found, absent.Fix = "no such file; the folder holds the plugin's sources",
				"name the folder that it was built into: "+folder
		}
		return nil, absent
	}
	if !info.Mode().IsRegular() {
		return nil, refusal.Incompatible(path, "a "+storage.Kind(info.Mode()), "a shared library", "")
	}
	if info.Size() > maxLibraryBytes {
		return nil, refusal.Incompatible(path, fmt.Sprintf("a file of %d bytes", info.Size()),
			fmt.Sprintf("at most %d", int64(maxLibraryBytes)), "")
	}
	content, err := sealed.Read(path, maxLibraryBytes)
	if err != nil {
		return nil, &diagnostic.Error{Kind: refusal.ErrStore, Path: path, Found: diagnostic.Cause(err),
			Fix: "make the file readable", Cause: err}
	}
	return content, nil
}

// readELF is Read over bytes. It is careful with hostile ones: debug/elf checks bounds, and
// what it does not bound, sizes of tables and compressed sections, is checked here.
func readELF(path string, file io.ReaderAt, size int64) (*File, error) {
	damaged := func(err error) error {
		return &diagnostic.Error{Kind: refusal.ErrIncompatible, Path: path, Found: "found a damaged ELF file: " + err.Error(),
			Needed: "a complete shared library", Fix: "build or download it again", Cause: err}
	}
	var magic [4]byte
	if n, _ := file.ReadAt(magic[:], 0); n < 4 || string(magic[:]) != elf.ELFMAG {
		return nil, refusal.Incompatible(path, fmt.Sprintf("a file that begins with %q", magic[:n]),
			"an ELF shared library (.so)",
			"build the plugin for linux/"+runtime.GOARCH)
	}
	f, err := elf.NewFile(io.NewSectionReader(file, 0, size))
	if err != nil {
		return nil, damaged(err)
	}
	defer f.Close()
	lib := &File{Path: path, Size: size, Bits: 32, Shared: f.Type == elf.ET_DYN}
	if f.Class == elf.ELFCLASS64 {
		lib.Bits = 64
	}
	name, known := goArch[f.Machine]
	if !known || lib.Bits != 64 || f.Data != elf.ELFDATA2LSB {
		name = fmt.Sprintf("%s (%d bits, %s)", strings.TrimPrefix(f.Machine.String(), "EM_"), lib.Bits,
			strings.TrimPrefix(f.Data.String(), "ELFDATA"))
	}
	lib.Machine = name
	for _, s := range f.Sections {
		tables := s.Type == elf.SHT_DYNSYM || s.Type == elf.SHT_STRTAB || s.Type == elf.SHT_DYNAMIC ||
			s.Type == elf.SHT_GNU_VERSYM ||
			s.Type == elf.SHT_GNU_VERNEED || s.Type == elf.SHT_GNU_VERDEF
		if tables && s.Flags&elf.SHF_ALLOC != 0 && (s.Size > maxSymbolBytes || s.Flags&elf.SHF_COMPRESSED != 0) {
			return nil, damaged(fmt.Errorf("section %q has %d bytes or is compressed, needed at most %d plain bytes",
				diagnostic.Clip(s.Name), s.Size, maxSymbolBytes))
		}
	}
	if known && lib.Bits == 64 && f.Data == elf.ELFDATA2LSB { // Check refuses others
		l, err := readLoading(f)
		if err != nil {
			return nil, damaged(err)
		}
		lib.Needed, lib.refused = l.needed, l.refused
	}
	if err := lib.readSymbols(f); err != nil {
		return nil, damaged(err)
	}
	if lib.Note, err = readNote(f); err != nil {
		return nil, damaged(err)
	}
	return lib, nil
}

// readSymbols finds the exported functions and objects.
func (l *File) readSymbols(f *elf.File) error {
	symbols, err := f.DynamicSymbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		return nil
	}
	if err != nil {
		return err
	}
	l.Hardening = readHardening(f, symbols)
	for _, s := range symbols {
		bind, kind := elf.ST_BIND(s.Info), elf.ST_TYPE(s.Info)
		visibility := elf.ST_VISIBILITY(s.Other)
		switch {
		case s.Section == elf.SHN_UNDEF, bind != elf.STB_GLOBAL && bind != elf.STB_WEAK,
			visibility == elf.STV_HIDDEN || visibility == elf.STV_INTERNAL:
			continue // not exported
		case kind != elf.STT_FUNC && kind != elf.STT_OBJECT && kind != elf.STT_NOTYPE && kind != elf.STT_TLS &&
			kind != elf.STT_GNU_IFUNC:
			continue
		case entryPattern.MatchString(s.Name):
			// Of several, the one that this host calls.
			if l.Entry != EntrySymbol {
				l.Entry = s.Name
			}
		case s.Name == RegisterSymbol:
			l.Registers = true
		case s.Name == "_init" || s.Name == "_fini" || s.Name == "_edata" || s.Name == "_end" || s.Name == "__bss_start" ||
			s.Section == elf.SHN_ABS:
			// what linkers add by themselves, version names among them
		case len(l.Unexpected) < maxListed:
			l.Unexpected = append(l.Unexpected, diagnostic.Clip(s.Name))
		}
	}
	slices.Sort(l.Unexpected)
	return nil
}

// readNote looks in the section of graft's name, then, as sections can be stripped, in the note segments.
func readNote(f *elf.File) (*Note, error) {
	read := func(r io.Reader, size uint64) ([]byte, error) {
		if size > maxNoteBytes {
			return nil, fmt.Errorf("found notes of %d bytes, needed at most %d", size, maxNoteBytes)
		}
		data := make([]byte, size)
		_, err := io.ReadFull(r, data)
		return data, err
	}
	if s := f.Section(noteSection); s != nil && s.Type == elf.SHT_NOTE && s.Flags&elf.SHF_COMPRESSED == 0 {
		data, err := read(s.Open(), s.Size)
		if err != nil {
			return nil, err
		}
		if note, found, err := ParseNote(data, f.ByteOrder); found || err != nil {
			return note, err
		}
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		data, err := read(p.Open(), p.Filesz)
		if err != nil {
			return nil, err
		}
		if note, found, err := ParseNote(data, f.ByteOrder); found || err != nil {
			return note, err
		}
	}
	return nil, nil
}

// Check reports, as an *diagnostic.Error of kind ErrIncompatible, the first reason for which a host of this ABI
// version cannot load the library on this platform.
func (l *File) Check(host manifest.ABIVersion, platform manifest.Platform) error {
	refuse := func(found, need, fix string) error { return refusal.Incompatible(l.Path, found, need, fix) }
	if l.Machine != platform.Arch {
		return refuse("a library for "+l.Machine, platform.Arch, "install the plugin's build for "+platform.String())
	}
	if !l.Shared {
		return refuse("an ELF file that is not a shared object", "one linked with -shared",
			"link the plugin as a shared library")
	}
	if l.Note != nil && !host.Accepts(l.Note.ABI) {
		return RefuseABI(l.Path, "ABI "+l.Note.ABI.String(), host, l.Note.ABI.Major, l.Note.ABI.Minor)
	}
	if l.Entry != EntrySymbol {
		if m := entryPattern.FindStringSubmatch(l.Entry); m != nil {
			major, _ := strconv.ParseUint(m[1], 10, 32)
			return RefuseABI(l.Path, "the symbol "+l.Entry, host, uint32(major), 0)
		}
		return refuse("no symbol "+EntrySymbol, "the entry point of a graft plugin",
			"export it from the library (abi/graft_plugin.h), or point at a library that is a graft plugin")
	}
	if l.Note == nil {
		return refuse("no ELF note "+noteSection, "the note that states ABI version and device",
			"build the plugin with the CMake function or macro of abi/, which adds it")
	}
	if l.Note.OS != platform.OS || l.Note.Arch != platform.Arch {
		return refuse("a note for "+l.Note.OS+"/"+l.Note.Arch, platform.String(),
			"install the plugin's build for "+platform.String())
	}
	if !l.Registers {
		return refuse("no symbol "+RegisterSymbol, "ONNX Runtime's registration function",
			"export it from the library; the kits define it")
	}
	for _, needed := range l.Needed {
		if strings.HasPrefix(needed, "libonnxruntime") || strings.HasPrefix(needed, "libcuda.so") {
			return refuse("a link to "+needed, "a plugin without it",
				"take it off the link line: the host passes ONNX Runtime's API in, and the driver is opened at run time")
		}
	}
	return l.private()
}

// RefuseABI is the refusal of another ABI version than the host's at path. It says which of the two sides is the older.
func RefuseABI(path, found string, host manifest.ABIVersion, major, minor uint32) error {
	need := fmt.Sprintf("ABI %d.0 to %s", host.Major, host)
	if host.Minor == 0 {
		need = "ABI " + host.String()
	}
	fix := fmt.Sprintf("update the plugin to a build for ABI %d", host.Major)
	if major > host.Major || (major == host.Major && minor > host.Minor) {
		fix = fmt.Sprintf("update graft to one that speaks ABI %d, or install an older release of the plugin", major)
		if major == host.Major {
			fix = fmt.Sprintf("update graft to one that speaks ABI %d.%d, or install an older release of the plugin", major,
				minor)
		}
	}
	return refusal.Incompatible(path, found, need, fix)
}

// Agree reports, as an *diagnostic.Error of kind ErrIncompatible, where the library's note contradicts the manifest.
func (l *File) Agree(m *manifest.Manifest, v *manifest.Variant) error {
	if l.Note == nil {
		return nil
	}
	for _, pair := range []struct{ what, note, manifest string }{
		{"name", l.Note.Name, m.Name},
		{"version", l.Note.Version, m.Version},
		{"ABI", l.Note.ABI.String(), m.ABI.String()},
		{"device", l.Note.Device, v.Device},
		{"os", l.Note.OS, v.OS},
		{"arch", l.Note.Arch, v.Arch},
	} {
		if pair.note != pair.manifest {
			return refusal.Incompatible(l.Path, fmt.Sprintf("%s %q in its ELF note", pair.what, diagnostic.Clip(pair.note)),
				fmt.Sprintf("%q as in %s", pair.manifest, manifest.FileName),
				"build the library and the manifest from the same source")
		}
	}
	return nil
}
