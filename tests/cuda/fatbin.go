package cuda

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

// fatbinSection is where nvcc puts the device code of a host object.
const fatbinSection = ".nv_fatbin"

// The layout of a fat binary: a header, then entries of a header and code each, all little-endian.
const (
	fatbinMagic    = 0xba55ed50
	fatbinHeader   = 16      // magic, version, its own size, bytes that follow
	entryHeader    = 64      // the least that is read of an entry's
	entryPTX       = 1       // kinds
	entrySASS      = 2       //
	entryFlags     = 40      // offsets in an entry's header
	entryArch      = 28      //
	flagSpecific   = 1 << 20 // code for one architecture alone: sm_90a
	fatbinMaxCount = 1 << 16
)

// Code is one piece of device code.
type Code struct {
	PTX      bool
	Arch     int  // 90 for sm_90, compute_90 and sm_90a
	Specific bool // for this architecture alone: sm_90a
}

// String is the name that nvcc knows it by.
func (c Code) String() string {
	name := fmt.Sprintf("sm_%d", c.Arch)
	if c.PTX {
		name = fmt.Sprintf("compute_%d", c.Arch)
	}
	if c.Specific {
		name += "a"
	}
	return name
}

// DeviceCode reads the fat binaries of a library, one for each of its sources.
func DeviceCode(library string) ([][]Code, error) {
	f, err := elf.Open(library)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	section := f.Section(fatbinSection)
	if section == nil {
		return nil, fmt.Errorf("%s: found no section %s, need one: no source of it went through nvcc", library, fatbinSection)
	}
	data, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", library, err)
	}
	all, err := parseFatbins(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", library, err)
	}
	return all, nil
}

// parseFatbins reads a section of fat binaries, one after the other with zeros between them.
func parseFatbins(data []byte) ([][]Code, error) {
	order := binary.LittleEndian
	var all [][]Code
	for at := 0; ; {
		for at < len(data) && data[at] == 0 {
			at++
		}
		if at == len(data) {
			return all, nil
		}
		if len(data)-at < fatbinHeader || order.Uint32(data[at:]) != fatbinMagic || len(all) == fatbinMaxCount {
			return nil, fmt.Errorf("found no fat binary at byte %d of %s", at, fatbinSection)
		}
		head, size := int(order.Uint16(data[at+6:])), order.Uint64(data[at+8:])
		if head < fatbinHeader || uint64(len(data)-at) < uint64(head) || size > uint64(len(data)-at-head) {
			return nil, fmt.Errorf("found a fat binary of %d bytes at byte %d, with %d left", size, at, len(data)-at)
		}
		codes, err := parseEntries(data[at+head : at+head+int(size)])
		if err != nil {
			return nil, fmt.Errorf("fat binary at byte %d: %w", at, err)
		}
		all = append(all, codes)
		at += head + int(size)
	}
}

func parseEntries(data []byte) ([]Code, error) {
	order := binary.LittleEndian
	var codes []Code
	for len(data) > 0 {
		if len(data) < entryHeader {
			return nil, fmt.Errorf("found an entry of %d bytes, need at least %d", len(data), entryHeader)
		}
		kind, head, size := order.Uint16(data), uint64(order.Uint32(data[4:])), order.Uint64(data[8:])
		if head < entryHeader || head > uint64(len(data)) || size > uint64(len(data))-head {
			return nil, fmt.Errorf("found an entry of %d + %d bytes, with %d left", head, size, len(data))
		}
		if size == 0 {
			return nil, fmt.Errorf("found an entry without code")
		}
		if kind != entryPTX && kind != entrySASS {
			return nil, fmt.Errorf("found an entry of kind %d, need %d (PTX) or %d (machine code)", kind, entryPTX, entrySASS)
		}
		codes = append(codes, Code{
			PTX: kind == entryPTX, Arch: int(order.Uint32(data[entryArch:])),
			Specific: order.Uint64(data[entryFlags:])&flagSpecific != 0,
		})
		data = data[head+size:]
	}
	return codes, nil
}

// MissingCode says what one source's code lacks of what a CUDA variant has that was compiled for compute capabilities:
// for 80 machine code for sm_80, and for 90 that for sm_90 or sm_90a and PTX of compute_90 for devices to come. "" when
// nothing.
func MissingCode(codes []Code, capabilities []string) string {
	has := func(ptx bool, arch int, specific bool) bool { return slices.Contains(codes, Code{ptx, arch, specific}) }
	var missing []string
	if slices.Contains(capabilities, "80") && !has(false, 80, false) {
		missing = append(missing, "sm_80")
	}
	if slices.Contains(capabilities, "90") {
		if !has(false, 90, false) && !has(false, 90, true) {
			missing = append(missing, "sm_90 or sm_90a")
		}
		if !has(true, 90, false) {
			missing = append(missing, "compute_90")
		}
	}
	return strings.Join(missing, ", ")
}
