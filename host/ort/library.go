package ort

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/ort/internal/cmem"
	"github.com/opgraft/graft/host/ort/internal/slot"
)

// APIVersion is the version of ONNX Runtime's C API that the package speaks. ONNX Runtime 1.N implements API version N,
// so 1.29 is the oldest runtime that can be used.
const APIVersion = slot.APIVersion

// A Library is a libonnxruntime mapped into this process and its API table. Libraries are never
// unmapped: sessions, threads and other bindings may live on in them. All methods may be called
// from any goroutine.
type Library struct {
	path    string
	version string
	handle  uintptr
	api     uintptr

	originals sync.Map // slot -> address of ONNX Runtime's own function, of those that are replaced

	environment environment

	elementOnce sync.Once
	elements    map[ElementType]uintptr // see created
}

// libraries holds one Library an API table, so that however a runtime was found its hook exists
// only once.
var libraries struct {
	sync.Mutex
	byTable map[uintptr]*Library
}

var (
	// ErrTooOld reports a runtime that lacks functions of the API version in use.
	ErrTooOld = errors.New("onnxruntime is too old")
	// ErrUnusable reports a file that cannot be read or loaded, or that is no ONNX Runtime.
	ErrUnusable = errors.New("no usable onnxruntime")
)

// unusable is of kind [ErrUnusable].
func unusable(path, found, needed string, cause error) error {
	return &diagnostic.Error{Kind: ErrUnusable, Path: path, Found: found, Needed: needed, Fix: fetchHint, Cause: cause}
}

// Open maps the libonnxruntime at path, which must exist, and checks its version. Opening a
// library twice gives the same *Library. Errors are of kind [ErrUnusable] or [ErrTooOld].
func Open(path string) (*Library, error) {
	if resolved, err := filepath.EvalSymlinks(path); err != nil {
		return nil, unusable(path, "cannot read: "+diagnostic.Cause(err), "a libonnxruntime", err)
	} else if path, err = filepath.Abs(resolved); err != nil {
		return nil, unusable(path, err.Error(), "a libonnxruntime", err)
	}
	// The linker holds the text of its last error for each thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	handle, err := purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
	if err != nil {
		return nil, unusable(path, "does not load: "+strings.TrimPrefix(err.Error(), path+": "), "a libonnxruntime", err)
	}
	base, err := purego.Dlsym(handle, baseSymbol)
	if err != nil {
		_ = purego.Dlclose(handle)
		return nil, unusable(path, "is not a libonnxruntime", "a library that exports "+baseSymbol, err)
	}
	l, err := attach(path, handle, base)
	if err != nil {
		_ = purego.Dlclose(handle)
	}
	return l, err
}

const baseSymbol = "OrtGetApiBase"

// attach reads OrtApiBase: {GetApi(uint32) *OrtApi, GetVersionString() char*}.
func attach(path string, handle, getBase uintptr) (*Library, error) {
	base, _, _ := purego.SyscallN(getBase)
	if base == 0 {
		return nil, unusable(path, baseSymbol+" returned null", "", nil)
	}
	text, _, _ := purego.SyscallN(cmem.LoadWord(base, 1))
	version := cmem.GoString(text)
	if err := checkVersion(path, version); err != nil {
		return nil, err
	}
	api, _, _ := purego.SyscallN(cmem.LoadWord(base, 0), APIVersion)
	if api == 0 {
		return nil, &diagnostic.Error{Kind: ErrTooOld, Path: path,
			Found: fmt.Sprintf("found version %q without API version %d", version, APIVersion), Fix: fetchHint}
	}

	libraries.Lock()
	defer libraries.Unlock()
	if l := libraries.byTable[api]; l != nil {
		return l, nil
	}
	l := &Library{path: path, version: version, handle: handle, api: api}
	if libraries.byTable == nil {
		libraries.byTable = map[uintptr]*Library{}
	}
	libraries.byTable[api] = l
	takeOver()
	return l, nil
}

// takeOver has libgraft.so, which graft run loads into programs, leave the sessions of this one to it: a program with
// this package decides itself which are patched.
func takeOver() {
	if disable, err := purego.Dlsym(purego.RTLD_DEFAULT, "graft_disable"); err == nil {
		purego.SyscallN(disable)
	}
}

// checkVersion compares before GetApi is called, because an old runtime answers a version that it
// does not know with a line on standard error.
func checkVersion(path, version string) error {
	major, minor, ok := parseVersion(version)
	if !ok {
		return unusable(path, fmt.Sprintf("found version %q", version), "the form major.minor.patch", nil)
	}
	if major < 1 || major == 1 && minor < APIVersion {
		return &diagnostic.Error{Kind: ErrTooOld, Path: path, Found: "found ONNX Runtime " + version,
			Needed: fmt.Sprintf("1.%d.0 or newer (API version %[1]d)", APIVersion), Fix: fetchHint}
	}
	return nil
}

func parseVersion(version string) (major, minor int, ok bool) {
	first, rest, found := strings.Cut(version, ".")
	if !found {
		return 0, 0, false
	}
	second, _, _ := strings.Cut(rest, ".")
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(second)
	return major, minor, err1 == nil && err2 == nil
}

// Path is the file that is mapped.
func (l *Library) Path() string { return l.path }

// API is the address of the table of functions, which [Library.Call] calls.
func (l *Library) API() uintptr { return l.api }

// Version is the runtime's own version, "1.30.0" for example.
func (l *Library) Version() string { return l.version }

// APIBase is the address of OrtGetApiBase's result, for libraries of operators that ask for it.
func (l *Library) APIBase() (uintptr, error) {
	symbol, err := purego.Dlsym(l.handle, baseSymbol)
	if err != nil {
		return 0, unusable(l.path, err.Error(), "", err)
	}
	base, _, _ := purego.SyscallN(symbol)
	return base, nil
}

// Function is the current function of a slot: ONNX Runtime's own, or the hook's while one is installed.
func (l *Library) Function(s slot.Slot) uintptr { return cmem.LoadWord(l.api, int(s)) }

// Call calls the function of a slot. Pointers are converted to uintptr in the call expression,
// which holds what they name alive and unmoved until the call returns.
//
//go:uintptrescapes
func (l *Library) Call(s slot.Slot, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(l.Function(s), args...)
	return r
}

// Try is Call for the functions that return an OrtStatus.
//
//go:uintptrescapes
func (l *Library) Try(name string, s slot.Slot, args ...uintptr) error {
	r, _, _ := purego.SyscallN(l.Function(s), args...)
	return l.TakeStatus(name, r)
}

// Original calls ONNX Runtime's own function, whether or not the hook stands in its slot.
//
//go:uintptrescapes
func (l *Library) Original(s slot.Slot, args ...uintptr) uintptr {
	fn := l.Function(s) // read first: if it is a callback, its original has been stored before
	if own, ok := l.originals.Load(s); ok {
		fn = own.(uintptr)
	}
	r, _, _ := purego.SyscallN(fn, args...)
	return r
}

// Replaced notes that something else stands in a slot now, and ONNX Runtime's own function.
func (l *Library) Replaced(s slot.Slot, original uintptr) { l.originals.Store(s, original) }
