// Package procmaps reads what is mapped into the process.
package procmaps

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// A Mapping is one line of /proc/self/maps.
type Mapping struct {
	start, end uintptr
	perm       string // "r-xp"
	Path       string
}

// Permissions are those of its pages, "r-xp" for example.
func (m Mapping) Permissions() string { return m.perm }

func (m Mapping) executable() bool { return len(m.perm) > 2 && m.perm[2] == 'x' }

type Mappings []Mapping

// At is the Mapping that holds an address.
func (ms Mappings) At(address uintptr) (Mapping, bool) {
	for _, m := range ms {
		if m.start <= address && address < m.end {
			return m, true
		}
	}
	return Mapping{}, false
}

const mapsPath = "/proc/self/maps" // the process's memory map

func Read() (Mappings, error) {
	f, err := os.Open(mapsPath)
	if err != nil {
		return nil, &diagnostic.Error{Path: mapsPath, Found: "cannot read: " + diagnostic.Cause(err), Cause: err}
	}
	defer f.Close()
	return parse(f)
}

func parse(r io.Reader) (Mappings, error) {
	var ms Mappings
	for lines := bufio.NewScanner(r); ; {
		if !lines.Scan() {
			return ms, lines.Err()
		}
		// 7f01-7f02 r-xp 00000000 fe:00 1234   /lib/x.so (deleted)
		fields := strings.SplitN(lines.Text(), " ", 6)
		if len(fields) < 5 {
			return nil, &diagnostic.Error{Path: mapsPath, Found: fmt.Sprintf("%q has %d fields", lines.Text(), len(fields)),
				Needed: "at least 5"}
		}
		low, high, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(low, 16, 64)
		end, err2 := strconv.ParseUint(high, 16, 64)
		if err := errors.Join(err1, err2); err != nil {
			return nil, &diagnostic.Error{Path: mapsPath, Found: fmt.Sprintf("%q: %v", lines.Text(), err), Cause: err}
		}
		m := Mapping{start: uintptr(start), end: uintptr(end), perm: fields[1]}
		if len(fields) == 6 {
			m.Path = strings.TrimSuffix(strings.TrimLeft(fields[5], " "), " (deleted)")
		}
		ms = append(ms, m)
	}
}

// Libraries lists the files with executable pages, those named like ONNX Runtime first.
func Libraries(ms Mappings) []string {
	var named, others []string
	for _, m := range ms {
		if !m.executable() || !strings.HasPrefix(m.Path, "/") || slices.Contains(named, m.Path) ||
			slices.Contains(others, m.Path) {
			continue
		}
		if strings.Contains(filepath.Base(m.Path), "onnxruntime") {
			named = append(named, m.Path)
		} else {
			others = append(others, m.Path)
		}
	}
	return append(named, others...)
}

// Protection is that of its pages, as mprotect takes it.
func (m Mapping) Protection() int {
	p := 0
	for i, bit := range []int{syscall.PROT_READ, syscall.PROT_WRITE, syscall.PROT_EXEC} {
		if len(m.perm) > i && m.perm[i] == "rwx"[i] {
			p |= bit
		}
	}
	return p
}
