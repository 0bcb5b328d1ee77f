package cuda

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/internal/must"
)

// entry is an entry of a fat binary as nvcc 13.0 writes it.
func entry(kind, arch int, flags uint64, code int) []byte {
	b := make([]byte, entryHeader+code)
	order := binary.LittleEndian
	order.PutUint16(b, uint16(kind))
	order.PutUint16(b[2:], 0x101)
	order.PutUint32(b[4:], entryHeader)
	order.PutUint64(b[8:], uint64(code))
	order.PutUint32(b[entryArch:], uint32(arch))
	order.PutUint64(b[entryFlags:], flags|0x11)
	return b
}

func fatbin(entries ...[]byte) []byte {
	b := make([]byte, fatbinHeader)
	order := binary.LittleEndian
	body := slices.Concat(entries...)
	order.PutUint32(b, fatbinMagic)
	order.PutUint16(b[4:], 1)
	order.PutUint16(b[6:], fatbinHeader)
	order.PutUint64(b[8:], uint64(len(body)))
	return append(b, body...)
}

func TestFatbins(t *testing.T) {
	plain := fatbin(entry(entrySASS, 80, 0, 128), entry(entrySASS, 90, 0, 64), entry(entryPTX, 90, 0, 32))
	hopper := fatbin(entry(entrySASS, 80, 0, 8), entry(entrySASS, 90, flagSpecific, 8), entry(entryPTX, 90, 0, 8))
	all := must.Value(parseFatbins(slices.Concat(plain, make([]byte, 24), hopper, make([]byte, 8))))(t)
	want := []string{"sm_80 sm_90 compute_90", "sm_80 sm_90a compute_90"}
	if len(all) != len(want) {
		t.Fatalf("found %d fat binaries, need %d", len(all), len(want))
	}
	for i, codes := range all {
		var names []string
		for _, c := range codes {
			names = append(names, c.String())
		}
		must.Equal(t, strings.Join(names, " "), want[i])
		must.Equal(t, MissingCode(codes, []string{"80", "90"}), "", i)
	}
}

func TestMissingCode(t *testing.T) {
	both := []string{"80", "90"}
	for _, c := range []struct {
		codes        []Code
		capabilities []string
		want         string
	}{
		{nil, both, "sm_80, sm_90 or sm_90a, compute_90"},
		{nil, both[:1], "sm_80"},
		{nil, both[1:], "sm_90 or sm_90a, compute_90"},
		{[]Code{{false, 80, false}, {false, 90, false}}, both, "compute_90"},
		{[]Code{{false, 80, false}, {false, 90, false}}, both[:1], ""},
		{[]Code{{false, 80, false}, {true, 90, false}}, both, "sm_90 or sm_90a"},
		{[]Code{{false, 90, true}, {true, 90, false}}, both, "sm_80"},
		{[]Code{{false, 90, true}, {true, 90, false}}, both[1:], ""},
		// PTX of compute_90a runs on no device but 9.0.
		{[]Code{{false, 80, false}, {false, 90, true}, {true, 90, true}}, both, "compute_90"},
	} {
		if got := MissingCode(c.codes, c.capabilities); got != c.want {
			t.Errorf("%v for %v: found %q missing, need %q", c.codes, c.capabilities, got, c.want)
		}
	}
}

func TestDamagedFatbins(t *testing.T) {
	whole := fatbin(entry(entrySASS, 80, 0, 128))
	changed := func(at int, to byte) []byte {
		b := slices.Clone(whole)
		b[at] = to
		return b
	}
	for _, c := range map[string]struct {
		data []byte
		want string
	}{
		"cut":          {whole[:len(whole)-1], "with 207 left"},
		"no magic":     {changed(0, 1), "no fat binary at byte 0"},
		"header":       {changed(6, 1), "found a fat binary"},
		"kind":         {changed(fatbinHeader, 9), "kind 9"},
		"entry's head": {changed(fatbinHeader+4, 3), "found an entry of 3 +"},
		"entry's size": {changed(fatbinHeader+8, 129), "+ 129 bytes"},
		"half a head":  {fatbin(make([]byte, 60)), "found an entry of 60 bytes"},
		"no code":      {fatbin(entry(entryPTX, 90, 0, 0)), "without code"},
	} {
		must.Fail(t, must.Error(parseFatbins(c.data)), c.want)
	}
}
