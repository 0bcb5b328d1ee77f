package library

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/opgraft/graft/host/plugin/manifest"
	"github.com/opgraft/graft/host/plugin/plugintest"
	"github.com/opgraft/graft/host/plugin/refusal"
	"github.com/opgraft/graft/internal/must"
)

// FuzzELFNote reads the bytes of a note section.
func FuzzELFNote(f *testing.F) {
	f.Add(note("graft", 1, cudaNote))
	f.Add(append(note("GNU", 3, "12345678901234567890"), note("graft", 1, cudaNote)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			var n *Note
			var found bool
			var err error
			must.CostLittle(t, len(data), func() { n, found, err = ParseNote(data, order) })
			if err != nil || !found {
				continue
			}
			if n.Name == "" || n.Version == "" || !slices.Contains(manifest.Devices, n.Device) {
				t.Fatalf("accepted %+v", n)
			}
			if strings.ContainsAny(n.Name+n.Version+n.OS+n.Arch, "\x00\n\x1b") {
				t.Fatalf("accepted control characters: %+v", n)
			}
		}
	})
}

// FuzzLibrary reads whole ELF files.
func FuzzLibrary(f *testing.F) {
	f.Add(plugintest.ReadFile(f,
		plugintest.Build(f, "-s", "-nostdlib", "-Wl,-z,max-page-size=4096", "-Dmalloc=__builtin_malloc")))
	f.Fuzz(func(t *testing.T, data []byte) {
		var err error
		must.CostLittle(t, len(data), func() {
			var lib *File
			if lib, err = readELF("p", bytes.NewReader(data), int64(len(data))); err == nil {
				err = lib.Check(HostABI, manifest.ThisPlatform)
			}
		})
		if err != nil && !errors.Is(err, refusal.ErrIncompatible) {
			t.Fatalf("error %v, want one of kind ErrIncompatible", err)
		}
	})
}
