package library

import (
	"debug/elf"
	"encoding/binary"
	"strings"
)

// Hardening is what a library was compiled and linked with against errors in it. What the host refuses, an executable
// stack or memory that is writable and executable, is not part of it.
type Hardening struct {
	// ReadOnly is what the loader makes read-only before code runs: "full", all that it fills in, "partial", without the
	// table of functions, or "none".
	ReadOnly       string `json:"read_only_relocations"`
	SeparateCode   bool   `json:"separate_code"`   // executable pages hold nothing else
	StackProtector bool   `json:"stack_protector"` // some function looks whether its frame was written over
	// functions of the C library with known sizes are called by their checked names
	Fortified bool `json:"fortified"`
	// ControlFlow says whether indirect calls can only go to the beginning of functions, where the processor checks it:
	// "marked", the whole library, "compiled", its own code but not all that was linked into it, or "none".
	ControlFlow string `json:"control_flow"`
}

// Lacks names what a library does not have.
func (h Hardening) Lacks() []string {
	var out []string
	for _, part := range []struct {
		has  bool
		name string
	}{
		{h.ReadOnly == "full", "full read-only relocations"}, {h.SeparateCode, "separate code"},
		{h.StackProtector, "stack protector"},
		{h.Fortified, "fortified functions"}, {h.ControlFlow != "none", "control flow"},
	} {
		if !part.has {
			out = append(out, part.name)
		}
	}
	return out
}

// readHardening reads it of segments, symbols and notes. A library may lie about itself: this is no reason to trust
// one.
func readHardening(f *elf.File, symbols []elf.Symbol) Hardening {
	h := Hardening{ReadOnly: "none", ControlFlow: "none", SeparateCode: true}
	for _, p := range f.Progs {
		switch {
		case p.Type == elf.PT_GNU_RELRO:
			h.ReadOnly = "partial"
		case p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0:
			// With the headers of the file, or with tables that are only read, in it, code is not separate.
			h.SeparateCode = h.SeparateCode && p.Off != 0
		}
	}
	flags, _ := f.DynValue(elf.DT_FLAGS)
	flags1, _ := f.DynValue(elf.DT_FLAGS_1)
	bindNow, _ := f.DynValue(elf.DT_BIND_NOW)
	now := len(bindNow) > 0 || len(flags) > 0 && elf.DynFlag(flags[0])&elf.DF_BIND_NOW != 0 ||
		len(flags1) > 0 && elf.DynFlag1(flags1[0])&elf.DF_1_NOW != 0
	if now && h.ReadOnly == "partial" {
		h.ReadOnly = "full"
	}
	for _, s := range symbols {
		switch {
		case s.Section != elf.SHN_UNDEF:
			if s.Name == EntrySymbol && beginsGuarded(f, s.Value) {
				h.ControlFlow = "compiled"
			}
		case s.Name == "__stack_chk_fail":
			h.StackProtector = true
		case strings.HasPrefix(s.Name, "__") && strings.HasSuffix(s.Name, "_chk"):
			h.Fortified = true
		}
	}
	if marked(f) {
		h.ControlFlow = "marked"
	}
	return h
}

// beginsGuarded reports whether the code at an address begins with an instruction that indirect calls may land on.
func beginsGuarded(f *elf.File, address uint64) bool {
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD || address < p.Vaddr || address-p.Vaddr >= p.Filesz {
			continue
		}
		var code [4]byte
		if n, err := p.ReadAt(code[:], int64(address-p.Vaddr)); err != nil || n < len(code) {
			return false
		}
		switch instruction := binary.LittleEndian.Uint32(code[:]); f.Machine {
		case elf.EM_X86_64:
			return instruction == 0xfa1e0ff3 // endbr64
		case elf.EM_AARCH64:
			return instruction == 0xd503245f || instruction == 0xd503233f // bti c, paciasp
		}
	}
	return false
}

// Properties of GNU's notes.
const (
	propertyType = 5 // NT_GNU_PROPERTY_TYPE_0
	x86Features  = 0xc0000002
	armFeatures  = 0xc0000000
	bothFeatures = 3 // IBT and SHSTK, or BTI and PAC
)

// marked reports whether the linker found every object to have been compiled for checked control flow.
func marked(f *elf.File) bool {
	for _, p := range f.Progs {
		if p.Type != elf.PT_GNU_PROPERTY || p.Filesz > maxNoteBytes {
			continue
		}
		note := make([]byte, p.Filesz)
		if n, _ := p.ReadAt(note, 0); n < len(note) || len(note) < 16 || f.ByteOrder.Uint32(note[8:]) != propertyType ||
			string(note[12:16]) != "GNU\x00" {
			return false
		}
		for rest := note[16:]; len(rest) >= 12; {
			kind, size := f.ByteOrder.Uint32(rest), f.ByteOrder.Uint32(rest[4:])
			if (kind == x86Features && f.Machine == elf.EM_X86_64 || kind == armFeatures && f.Machine == elf.EM_AARCH64) &&
				size == 4 {
				return f.ByteOrder.Uint32(rest[8:])&bothFeatures == bothFeatures
			}
			step := 8 + (uint64(size)+7)/8*8
			if step > uint64(len(rest)) {
				return false
			}
			rest = rest[step:]
		}
	}
	return false
}
