package library

import (
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/plugin/manifest"
)

// The ELF note of graft_plugin.h.
const (
	noteSection = ".note.graft"
	noteOwner   = "graft"
	noteType    = 1
)

// keyPattern is the form of a key in a note.
var keyPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)

// Limits of a note section.
const (
	maxNoteBytes = 64 << 10
	maxNoteLines = 64
)

// Note is what a library states about itself in its ELF note: what it needs can be read without running
// it.
type Note struct {
	ABI     manifest.ABIVersion `json:"abi"`
	Name    string              `json:"name"`
	Version string              `json:"version"`
	Device  string              `json:"device"`
	OS      string              `json:"os"`
	Arch    string              `json:"arch"`
	ISA     []string            `json:"isa,omitempty"`   // instruction sets dispatched among; the first is the baseline
	SM      []string            `json:"sm,omitempty"`    // CUDA SM versions
	CUDA    string              `json:"cuda,omitempty"`  // CUDA major
	Other   map[string]string   `json:"other,omitempty"` // keys of later minor versions
}

// ParseNote finds graft's note in the bytes of a note section or segment and reads it. found is false
// when the notes are well formed and none is graft's.
func ParseNote(section []byte, order binary.ByteOrder) (note *Note, found bool, err error) {
	if len(section) > maxNoteBytes {
		return nil, false, fmt.Errorf("found a note section of %d bytes, needed at most %d", len(section), maxNoteBytes)
	}
	for rest := section; len(rest) > 0; {
		if len(rest) < 12 {
			return nil, false, fmt.Errorf("found %d bytes where an ELF note begins, needed at least 12", len(rest))
		}
		nameSize, descSize, kind := order.Uint32(rest), order.Uint32(rest[4:]), order.Uint32(rest[8:])
		rest = rest[12:]
		name, after, err := noteField(rest, nameSize, "name")
		if err != nil {
			return nil, false, err
		}
		payload, after, err := noteField(after, descSize, "payload")
		if err != nil {
			return nil, false, err
		}
		rest = after
		if strings.TrimRight(string(name), "\x00") == noteOwner && kind == noteType {
			note, err := parseNoteText(string(payload))
			return note, true, err
		}
	}
	return nil, false, nil
}

// noteField cuts a field of size bytes and its padding to four.
func noteField(data []byte, size uint32, what string) (field, rest []byte, err error) {
	if uint64(size) > uint64(len(data)) {
		return nil, nil, fmt.Errorf("found an ELF note whose %s has %d bytes with %d left in the section", what, size,
			len(data))
	}
	padded := min((int(size)+3)&^3, len(data)) // the last padding may be missing
	return data[:size], data[padded:], nil
}

func parseNoteText(text string) (*Note, error) {
	text = strings.TrimRight(text, "\x00")
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("found a graft note that is not UTF-8")
	}
	if strings.Count(text, "\n") > maxNoteLines {
		return nil, fmt.Errorf("found a graft note of more than %d lines", maxNoteLines)
	}
	values := map[string]string{}
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		if line == "" {
			continue
		}
		key, value, ok := strings.Cut(line, "=")
		if !ok || !keyPattern.MatchString(key) {
			return nil, fmt.Errorf("found the line %q in the graft note, needed key=value", diagnostic.Clip(line))
		}
		if _, dup := values[key]; dup {
			return nil, fmt.Errorf("found %s twice in the graft note", key)
		}
		if strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return nil, fmt.Errorf("found a control character in %s of the graft note", key)
		}
		values[key] = value
	}
	take := func(key string) string {
		v := values[key]
		delete(values, key)
		return v
	}
	list := func(key string) []string {
		v := take(key)
		if v == "" {
			return nil
		}
		return strings.Split(v, ",")
	}
	for _, key := range []string{"abi", "name", "version", "device", "os", "arch"} {
		if values[key] == "" {
			return nil, fmt.Errorf("found no %s in the graft note", key)
		}
	}
	abi, err := manifest.ParseABIVersion(take("abi"))
	if err != nil {
		return nil, fmt.Errorf("graft note: %w", err)
	}
	n := &Note{
		ABI: abi, Name: take("name"), Version: take("version"), Device: take("device"), OS: take("os"), Arch: take("arch"),
		ISA: list("isa"), SM: list("sm"), CUDA: take("cuda"),
	}
	if !slices.Contains(manifest.Devices, n.Device) {
		return nil, fmt.Errorf("found device %q in the graft note, needed one of %s", diagnostic.Clip(n.Device),
			strings.Join(manifest.Devices, ", "))
	}
	if len(values) > 0 {
		n.Other = values
	}
	return n, nil
}
