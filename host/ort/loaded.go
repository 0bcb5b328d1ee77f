package ort

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

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// ErrNotLoaded reports that the process has no ONNX Runtime mapped yet.
var ErrNotLoaded = errors.New("onnxruntime is not loaded in this process")

// rtldNoload makes dlopen answer only for what is mapped already (glibc, musl and bionic agree).
const rtldNoload = 0x4

// Loaded finds every ONNX Runtime that the process has mapped, whoever mapped it. Bindings open
// the library privately (RTLD_LOCAL), so the dynamic linker's global scope does not show it; the
// process's memory map does. The error joins the refusals of those that are too old; it is
// of kind [ErrNotLoaded] when there is none at all.
func Loaded() ([]*Library, error) {
	maps, err := readMaps()
	if err != nil {
		return nil, err
	}
	var found []*Library
	var refused []error
	add := func(path string, handle, getBase uintptr) {
		switch l, err := attach(path, handle, getBase); {
		case err != nil:
			refused = append(refused, err)
			if handle != purego.RTLD_DEFAULT {
				_ = purego.Dlclose(handle)
			}
		case !slices.Contains(found, l):
			found = append(found, l)
		}
	}
	for _, path := range mappedLibraries(maps) {
		handle, err := purego.Dlopen(path, purego.RTLD_LAZY|rtldNoload)
		if err != nil {
			continue // mapped as data, not by the dynamic linker
		}
		symbol, err := purego.Dlsym(handle, baseSymbol)
		if err != nil {
			_ = purego.Dlclose(handle)
			continue
		}
		// A library that depends on ONNX Runtime finds the symbol too: ask who owns the address.
		if owner, ok := maps.at(symbol); ok && owner.path != "" {
			path = owner.path
		}
		add(path, handle, symbol)
	}
	if symbol, err := purego.Dlsym(purego.RTLD_DEFAULT, baseSymbol); err == nil {
		owner, _ := maps.at(symbol)
		add(owner.path, purego.RTLD_DEFAULT, symbol) // linked into the executable itself
	}
	if len(found) == 0 && len(refused) == 0 {
		return nil, &diagnostic.Error{Kind: ErrNotLoaded, Found: ErrNotLoaded.Error(),
			Fix: "call this after the runtime's own initialisation (ort.InitializeEnvironment with onnxruntime_go)"}
	}
	return found, errors.Join(refused...)
}

// A mapping is one line of /proc/self/maps.
type mapping struct {
	start, end uintptr
	perm       string // "r-xp"
	path       string
}

func (m mapping) executable() bool { return len(m.perm) > 2 && m.perm[2] == 'x' }

type mappings []mapping

// at is the mapping that holds an address.
func (ms mappings) at(address uintptr) (mapping, bool) {
	for _, m := range ms {
		if m.start <= address && address < m.end {
			return m, true
		}
	}
	return mapping{}, false
}

const mapsPath = "/proc/self/maps" // the process's memory map

func readMaps() (mappings, error) {
	f, err := os.Open(mapsPath)
	if err != nil {
		return nil, &diagnostic.Error{Path: mapsPath, Found: "cannot read: " + diagnostic.Cause(err), Cause: err}
	}
	defer f.Close()
	return parseMaps(f)
}

func parseMaps(r io.Reader) (mappings, error) {
	var ms mappings
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
		m := mapping{start: uintptr(start), end: uintptr(end), perm: fields[1]}
		if len(fields) == 6 {
			m.path = strings.TrimSuffix(strings.TrimLeft(fields[5], " "), " (deleted)")
		}
		ms = append(ms, m)
	}
}

// mappedLibraries lists the files with executable pages, those named like ONNX Runtime first.
func mappedLibraries(ms mappings) []string {
	var named, others []string
	for _, m := range ms {
		if !m.executable() || !strings.HasPrefix(m.path, "/") || slices.Contains(named, m.path) ||
			slices.Contains(others, m.path) {
			continue
		}
		if strings.Contains(filepath.Base(m.path), "onnxruntime") {
			named = append(named, m.path)
		} else {
			others = append(others, m.path)
		}
	}
	return append(named, others...)
}
