package library

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/refusal"
)

// Limits of what the loader is told.
const (
	maxSegments = 64
	maxDynamic  = 4096 // entries of the dynamic section
	maxString   = 4096 // bytes of a name in it
	pageBytes   = 4096 // the smallest page that a supported system has
)

// system names the libraries that a plugin may need: those of the C library and of compilers, which the
// system finds in its own folders. Any other would be code that nobody has looked at.
var system = regexp.MustCompile(
	`^(lib(c|m|mvec)\.so\.6|lib(pthread|util)\.so\.[01]|libdl\.so\.2|lib(rt|gcc_s|gomp|atomic)\.so\.1|libstdc\+\+\.so\.6|` +
		`ld-linux-[a-z0-9_-]+\.so\.\d|libc\.musl-[a-z0-9_]+\.so\.1)$`)

// loading is what the system's loader is told to do beside mapping the file.
type loading struct {
	needed  []string
	refused []refusedPart
}

// refusedPart is something that no plugin may have.
type refusedPart struct{ found, needed, fix string }

// Tags of the dynamic section that debug/elf does not name.
const (
	tagAuxiliary elf.DynTag = 0x7ffffffd
	tagFilter    elf.DynTag = 0x7fffffff
	tagAudit     elf.DynTag = 0x6ffffefc
	tagDepAudit  elf.DynTag = 0x6ffffefb
	tagConfig    elf.DynTag = 0x6ffffefa
)

// paths are entries that make the loader look for code elsewhere.
var paths = map[elf.DynTag]string{
	elf.DT_RPATH: "RPATH", elf.DT_RUNPATH: "RUNPATH", tagAudit: "AUDIT", tagDepAudit: "DEPAUDIT", tagConfig: "CONFIG",
	tagAuxiliary: "AUXILIARY", tagFilter: "FILTER",
}

// readLoading reads what the system's loader will read, where it will read it: at the addresses of the
// segments. Sections, which tools read and the loader does not, may say anything else.
func readLoading(f *elf.File) (*loading, error) {
	l := &loading{}
	if len(f.Progs) > maxSegments {
		return nil, fmt.Errorf("found %d segments, needed at most %d", len(f.Progs), maxSegments)
	}
	refuse := func(found, needed, fix string) { l.refused = append(l.refused, refusedPart{found, needed, fix}) }
	var dynamic *elf.Prog
	var end uint64 // of the segments so far, in whole pages
	stack := false
	for _, p := range f.Progs {
		switch p.Type {
		case elf.PT_LOAD:
			last := p.Vaddr + p.Memsz
			if p.Filesz > p.Memsz || last < p.Vaddr || last > 1<<47 || p.Vaddr&^(pageBytes-1) < end ||
				(p.Vaddr-p.Off)%pageBytes != 0 {
				return nil, errors.New("segments that overlap, are out of order or do not fit into memory")
			}
			end = (last + pageBytes - 1) &^ (pageBytes - 1)
			if p.Flags&elf.PF_W != 0 && p.Flags&elf.PF_X != 0 {
				refuse("a segment that is writable and executable", "segments that are one or neither",
					"link it without -z wxneeded, -N and the like")
			}
		case elf.PT_GNU_STACK:
			stack = true
			if p.Flags&elf.PF_X != 0 {
				refuse("that it needs an executable stack", "one that is not", "link it with -z noexecstack")
			}
		case elf.PT_DYNAMIC:
			if dynamic != nil {
				return nil, errors.New("two dynamic sections")
			}
			dynamic = p
		}
	}
	if !stack {
		refuse("no PT_GNU_STACK segment, without which the stack becomes executable", "one", "link it with -z noexecstack")
	}
	if dynamic == nil {
		return l, nil
	}
	return l, l.readDynamic(f, dynamic.Vaddr, refuse)
}

// readDynamic reads the dynamic section at an address, to its end as the loader sees it.
func (l *loading) readDynamic(f *elf.File, address uint64, refuse func(found, needed, fix string)) error {
	type entry struct {
		tag   elf.DynTag
		value uint64
	}
	var names []entry
	var table uint64
	r, err := at(f, address)
	if err != nil {
		return fmt.Errorf("a dynamic section outside the file: %w", err)
	}
	for n := 0; ; n++ {
		var raw [16]byte
		if _, err := io.ReadFull(r, raw[:]); err != nil || n == maxDynamic {
			return errors.New("a dynamic section without an end")
		}
		e := entry{elf.DynTag(binary.LittleEndian.Uint64(raw[:])), binary.LittleEndian.Uint64(raw[8:])}
		if e.tag == elf.DT_NULL {
			break
		}
		switch {
		case e.tag == elf.DT_STRTAB:
			table = e.value
		case e.tag == elf.DT_NEEDED || paths[e.tag] != "":
			names = append(names, e)
		case e.tag == elf.DT_TEXTREL, e.tag == elf.DT_FLAGS && elf.DynFlag(e.value)&elf.DF_TEXTREL != 0:
			refuse("relocations in its code, which make code writable while it is loaded", "none",
				"compile all of it with -fPIC")
		}
	}
	for _, e := range names {
		name, err := stringAt(f, table, e.value)
		if err != nil {
			return err
		}
		switch {
		case e.tag == elf.DT_NEEDED:
			l.needed = append(l.needed, name)
		case name != "":
			refuse(fmt.Sprintf("the %s %q, by which the system would load other files with it", paths[e.tag],
				diagnostic.Clip(name)),
				"a library without", "link it without -rpath, --audit, --filter and the like (CMake: SKIP_RPATH), and what it "+
					"needs statically")
		}
	}
	return nil
}

// at reads the file from what is loaded at an address to the end of that segment.
func at(f *elf.File, address uint64) (io.Reader, error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && address >= p.Vaddr && address-p.Vaddr < p.Filesz {
			offset := address - p.Vaddr
			return io.NewSectionReader(p.ReaderAt, int64(offset), int64(p.Filesz-offset)), nil
		}
	}
	return nil, fmt.Errorf("nothing is loaded from the file at address %#x", address)
}

// stringAt reads a string of the table at an address.
func stringAt(f *elf.File, table, offset uint64) (string, error) {
	r, err := at(f, table+offset)
	if err != nil {
		return "", fmt.Errorf("a name outside the file: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(r, maxString))
	if err != nil {
		return "", err
	}
	text, _, whole := bytes.Cut(text, []byte{0})
	if !whole {
		return "", fmt.Errorf("a name without an end at address %#x", table+offset)
	}
	return string(text), nil
}

// private reports the first thing for which loading the library would bring other code with it, or memory that is
// writable and executable.
func (l *File) private() error {
	for _, r := range l.refused {
		return refusal.Incompatible(l.Path, r.found, r.needed, r.fix)
	}
	i := slices.IndexFunc(l.Needed, func(name string) bool { return !system.MatchString(name) })
	if i < 0 {
		return nil
	}
	return refusal.Incompatible(l.Path,
		fmt.Sprintf("that it needs the library %q", diagnostic.Printable(diagnostic.Clip(l.Needed[i]))),
		"only libraries of the C library and the compiler: any other is code that nobody has checked", "link it statically")
}
