package library

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

// patched writes a variation of the fixture whose bytes were changed.
func patched(t testing.TB, change func(data []byte, f *elf.File), flags ...string) string {
	data := bytes.Clone(plugintest.ReadFile(t, plugintest.Build(t, flags...)))
	f := must.Value(elf.NewFile(bytes.NewReader(data)))(t)
	change(data, f)
	path := filepath.Join(t.TempDir(), "libtoy.so")
	plugintest.WriteFile(t, path, data)
	return path
}

// segment is where the header of the first segment stands that a test wants.
func segment(data []byte, f *elf.File, want func(*elf.Prog) bool) []byte {
	for i, p := range f.Progs {
		if want(p) {
			return data[binary.LittleEndian.Uint64(data[32:])+uint64(i)*56:]
		}
	}
	panic("no such segment")
}

// entry is where the entry of a tag stands in the dynamic section.
func entry(data []byte, f *elf.File, tag elf.DynTag) []byte {
	section := data[f.Section(".dynamic").Offset:]
	for elf.DynTag(binary.LittleEndian.Uint64(section)) != tag {
		section = section[16:]
	}
	return section
}

// helper is a library beside the plugin, with a name of its own.
func helper(t testing.TB, soname string) []string {
	folder := t.TempDir()
	plugintest.Compile(t, filepath.Join(folder, "libhelper.so"), "-x", "c", "/dev/null", "-Wl,-soname,"+soname)
	return []string{"-L" + folder, "-Wl,--no-as-needed", "-lhelper"}
}

// TestRefusesOtherCode holds that no library is accepted with which the system would load files that nobody has
// hashed, or make memory writable and executable, whatever its sections say.
func TestRefusesOtherCode(t *testing.T) {
	ofType := func(kind elf.ProgType) func(*elf.Prog) bool { return func(p *elf.Prog) bool { return p.Type == kind } }
	code := func(p *elf.Prog) bool { return p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 }
	const relink = "link it without -rpath, --audit, --filter and the like (CMake: SKIP_RPATH), and what it needs " +
		"statically"
	path := func(what, name string) string {
		return "found the " + what + ` "` + name +
			`", by which the system would load other files with it, needed a library without; ` + relink
	}
	needs := func(name string) string {
		return `found that it needs the library "` + name +
			`", needed only libraries of the C library and the compiler: any other is code that nobody has checked; link it statically`
	}
	const damaged = "needed a complete shared library; build or download it again"
	built := func(flags ...string) func(testing.TB) string {
		return func(t testing.TB) string { return plugintest.Build(t, flags...) }
	}
	for _, test := range []struct {
		name string
		make func(testing.TB) string
		want string
	}{
		{"needed", func(t testing.TB) string { return plugintest.Build(t, helper(t, "libhelper.so.1")...) },
			needs("libhelper.so.1")},
		{"needed by path", func(t testing.TB) string { return plugintest.Build(t, helper(t, "/tmp/libc.so.6")...) },
			needs("/tmp/libc.so.6")},
		{"needed like a system's", func(t testing.TB) string { return plugintest.Build(t, helper(t, "libc.so.66")...) },
			needs("libc.so.66")},
		{"needed, hidden from the sections", func(t testing.TB) string {
			return patched(t, func(data []byte, f *elf.File) {
				for i, s := range f.Sections {
					if s.Type == elf.SHT_DYNAMIC {
						header := data[binary.LittleEndian.Uint64(data[40:])+uint64(i)*64:]
						binary.LittleEndian.PutUint32(header[4:], uint32(elf.SHT_PROGBITS))
					}
				}
			}, helper(t, "libhelper.so.1")...)
		}, needs("libhelper.so.1")},
		{"needed, after the end that the segment states", func(t testing.TB) string {
			return patched(t, func(data []byte, f *elf.File) {
				header := segment(data, f, ofType(elf.PT_DYNAMIC))
				binary.LittleEndian.PutUint64(header[32:], 0)
				binary.LittleEndian.PutUint64(header[40:], 0)
			}, helper(t, "libhelper.so.1")...)
		}, needs("libhelper.so.1")},
		{"RUNPATH", built("-Wl,-rpath,$ORIGIN"), path("RUNPATH", "$ORIGIN")},
		{"RPATH", built("-Wl,--disable-new-dtags,-rpath,/opt"), path("RPATH", "/opt")},
		{"AUDIT", built("-Wl,--audit,libx.so"), path("AUDIT", "libx.so")},
		{"DEPAUDIT", built("-Wl,--depaudit,libx.so"), path("DEPAUDIT", "libx.so")},
		{"FILTER", built("-Wl,-F,libx.so"), path("FILTER", "libx.so")},
		{"AUXILIARY", built("-Wl,-f,libx.so"), path("AUXILIARY", "libx.so")},
		{"executable stack", built("-Wl,-z,execstack"),
			"found that it needs an executable stack, needed one that is not; link it with -z noexecstack"},
		{"no word on the stack", func(t testing.TB) string {
			return patched(t, func(data []byte, f *elf.File) {
				binary.LittleEndian.PutUint32(segment(data, f, ofType(elf.PT_GNU_STACK)), uint32(elf.PT_NULL))
			})
		}, "found no PT_GNU_STACK segment, without which the stack becomes executable, needed one; link it with -z " +
			"noexecstack"},
		{"writable code", func(t testing.TB) string {
			return patched(t, func(data []byte, f *elf.File) {
				binary.LittleEndian.PutUint32(segment(data, f, code)[4:], uint32(elf.PF_R|elf.PF_W|elf.PF_X))
			})
		}, "found a segment that is writable and executable, needed segments that are one or neither; link it without -z " +
			"wxneeded, -N and the like"},
		{"relocations in code", func(t testing.TB) string {
			return patched(t, func(data []byte, f *elf.File) {
				binary.LittleEndian.PutUint64(entry(data, f, elf.DT_FLAGS)[8:], uint64(elf.DF_TEXTREL))
			}, "-Wl,-z,now")
		}, "found relocations in its code, which make code writable while it is loaded, needed none; compile all of it " +
			"with -fPIC"},
		{"two dynamic sections", func(t testing.TB) string {
			return patched(t, func(data []byte, f *elf.File) {
				binary.LittleEndian.PutUint32(segment(data, f, ofType(elf.PT_NOTE)), uint32(elf.PT_DYNAMIC))
			})
		}, "found a damaged ELF file: two dynamic sections, " + damaged},
		{"overlapping segments", func(t testing.TB) string {
			return patched(t, func(data []byte, f *elf.File) {
				binary.LittleEndian.PutUint64(segment(data, f, ofType(elf.PT_LOAD))[40:], 1<<20)
			})
		}, "found a damaged ELF file: segments that overlap, are out of order or do not fit into memory, " + damaged},
		{"dynamic section elsewhere", func(t testing.TB) string {
			return patched(t, func(data []byte, f *elf.File) {
				binary.LittleEndian.PutUint64(segment(data, f, ofType(elf.PT_DYNAMIC))[16:], 1<<40)
			})
		}, "found a damaged ELF file: a dynamic section outside the file: nothing is loaded from the file at address " +
			"0x10000000000, " + damaged},
		{"a name elsewhere", func(t testing.TB) string {
			return patched(t, func(data []byte, f *elf.File) {
				binary.LittleEndian.PutUint64(entry(data, f, elf.DT_STRTAB)[8:], 1<<40-1)
				binary.LittleEndian.PutUint64(entry(data, f, elf.DT_NEEDED)[8:], 1)
			})
		}, "found a damaged ELF file: a name outside the file: nothing is loaded from the file at address 0x10000000000, " +
			damaged},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := test.make(t)
			lib, err := Read(path)
			if err == nil {
				err = lib.Check(HostABI, manifest.ThisPlatform)
			}
			must.FailExactly(t, err, path+": "+test.want)
			must.Fail(t, err, refusal.ErrIncompatible)
		})
	}
	for _, name := range []string{"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1",
		"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1",
		"ld-linux-riscv64-lp64d.so.1", "libstdc++.so.6", "libgcc_s.so.1", "libgomp.so.1"} {
		if !system.MatchString(name) {
			t.Errorf("%s is refused", name)
		}
	}
}
