package cuda

import (
	"os"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/cuda/signals"
	"github.com/opgraft/graft/host/base/diagnostic"
)

// Driver is NVIDIA's driver library, mapped into this process and started. It is never unmapped, and its
// methods are safe from several goroutines.
type Driver struct {
	path      string
	version   Version
	functions [numEntries]uintptr
	called    [numEntries]atomic.Bool
}

// library is a driver's library before it is known to be usable.
type library struct {
	path    string
	handle  uintptr
	version Version
}

// opened holds what each path gave: a library is loaded, and fails, once.
var opened struct {
	sync.Mutex
	libraries map[string]func() (*library, error)
	drivers   map[string]func() (*Driver, error)
}

// once gives the function that is made once for a path.
func once[T any](m *map[string]func() (T, error), path string, open func(string) (T, error)) func() (T, error) {
	opened.Lock()
	defer opened.Unlock()
	if *m == nil {
		*m = map[string]func() (T, error){}
	}
	f := (*m)[path]
	if f == nil {
		f = sync.OnceValues(func() (T, error) { return open(path) })
		(*m)[path] = f
	}
	return f
}

// Open loads and starts the driver where the system has it, or at the path in GRAFT_CUDA_DRIVER; once, so
// that later calls give the same answer. The error is an *diagnostic.Error of kind ErrNoDriver, ErrDriverTooOld,
// ErrNoDevice or ErrDriver.
func Open() (*Driver, error) { return OpenPath("") }

// OpenPath is Open of the library at a path, and Open where path is empty.
func OpenPath(path string) (*Driver, error) {
	return once(&opened.drivers, path, start)()
}

// DriverVersion is the newest CUDA that the driver supports. It needs no device and does not start the
// driver, so it answers too where Open says ErrDriverTooOld or ErrNoDevice.
func DriverVersion() (Version, error) {
	l, err := findLibrary("")
	if err != nil {
		return 0, err
	}
	return l.version, nil
}

func findLibrary(path string) (*library, error) {
	return once(&opened.libraries, path, openLibrary)()
}

// openLibrary loads a library and asks for its version, which it tells before it is started.
func openLibrary(path string) (*library, error) {
	handle, found, err := load(path)
	if err != nil {
		return nil, err
	}
	function, err := dlsym(handle, "cuDriverGetVersion")
	if err != nil {
		return nil, &diagnostic.Error{Kind: ErrDriver, Path: found, Found: "found a library without cuDriverGetVersion",
			Needed: "NVIDIA's driver",
			Fix:    "name its " + libraryName + " with " + EnvPath + ", or name none", Cause: err}
	}
	var version int32
	var r uintptr
	signals.Preserve(func() { r = callC(function, uintptr(unsafe.Pointer(&version))) })
	if Result(r) != Success {
		return nil, &diagnostic.Error{Kind: ErrDriver, Path: found,
			Found: "found that cuDriverGetVersion fails: " + Result(r).Error(), Fix: "install the driver again",
			Cause: Result(r)}
	}
	return &library{path: found, handle: handle, version: Version(version)}, nil
}

// callC calls a C function. Pointers are made uintptr in the call expression, which holds what they name
// alive and where it is.
//
//go:uintptrescapes
func callC(function uintptr, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(function, args...)
	return r
}

// start makes a usable driver of a library: new enough, with every function, initialised.
func start(path string) (*Driver, error) {
	l, err := findLibrary(path)
	if err != nil {
		return nil, err
	}
	if l.version < RequiredVersion {
		return nil, &diagnostic.Error{Kind: ErrDriverTooOld, Path: l.path,
			Found: "found a driver for CUDA " + l.version.String(), Needed: RequiredVersion.String() + " or newer",
			Fix: "install release " + requiredRelease + " or newer of NVIDIA's driver, or its package cuda-compat-13-0"}
	}
	d := &Driver{path: l.path, version: l.version}
	if err := d.findFunctions(l); err != nil {
		return nil, err
	}
	if r := d.result(cuInit, 0); r != Success {
		return nil, d.startError(r)
	}
	return d, nil
}

// findFunctions asks the driver for its functions, each in the form that entries name.
func (d *Driver) findFunctions(l *library) error {
	const (
		symbol       = "cuGetProcAddress_v2"
		legacyStream = 1 // CU_GET_PROC_ADDRESS_LEGACY_STREAM: a null stream waits for all others
	)
	find, err := dlsym(l.handle, symbol)
	if err != nil {
		return d.missing(symbol, err)
	}
	for e := range entries {
		var function uintptr
		name := abi.CString(entries[e].name)
		r := callC(find, uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&function)), uintptr(entries[e].since),
			legacyStream, 0)
		if Result(r) != Success || function == 0 {
			return d.missing(entries[e].name+" of CUDA "+entries[e].since.String(), nil)
		}
		d.functions[e] = function
	}
	return nil
}

func (d *Driver) missing(what string, cause error) error {
	return &diagnostic.Error{Kind: ErrDriver, Path: d.path,
		Found:  "found a driver for CUDA " + d.version.String() + " without " + what,
		Needed: "all of CUDA " + RequiredVersion.String(),
		Fix:    "install NVIDIA's driver again", Cause: cause}
}

// startError says what a failed cuInit means.
func (d *Driver) startError(r Result) error {
	err := d.callError(cuInit, r)
	e := &diagnostic.Error{Kind: ErrDriver, Path: d.path, Found: "found that the driver does not start: " + err.Error(),
		Cause: err}
	switch r {
	case NoDevice:
		return d.noDevice(err)
	case StubLibrary:
		e.Found, e.Needed = "found the toolkit's stub for linking", "the driver"
		e.Fix = "take the toolkit's folder stubs out of LD_LIBRARY_PATH"
	case DriverMismatch:
		e.Found = "found a library of another release than the kernel's module"
		if release := moduleRelease(); release != "" {
			e.Found += " " + release
		}
		e.Needed, e.Fix = "the same", "restart the machine after an update of the driver, or remove the older library"
	case CompatNotSupported:
		e.Found, e.Needed = "found a library of cuda-compat on a device that it does not support", "the driver's own"
		e.Fix = "install release " + requiredRelease +
			" or newer of NVIDIA's driver and take cuda-compat out of LD_LIBRARY_PATH"
	case SystemNotReady:
		e.Fix = "start NVIDIA's fabric manager"
	default:
		e.Fix = "see whether nvidia-smi works"
	}
	return e
}

func (d *Driver) noDevice(cause error) error {
	e := &diagnostic.Error{Kind: ErrNoDevice, Path: d.path,
		Found: "found a driver for CUDA " + d.version.String() + " and no device", Needed: "an NVIDIA GPU",
		Fix: "see whether nvidia-smi shows one", Cause: cause}
	if visible, set := os.LookupEnv("CUDA_VISIBLE_DEVICES"); set {
		e.Found += ` among CUDA_VISIBLE_DEVICES="` + visible + `"`
		e.Fix = "change or unset that"
	}
	return e
}

// Path is the file that the driver was loaded from.
func (d *Driver) Path() string { return d.path }

// Version is the newest CUDA that the driver supports.
func (d *Driver) Version() Version { return d.version }

// result calls one of the driver's functions. The first call of each is watched for signal handlers: the
// driver does a part of its work, such as loading its compiler, when that is first needed.
//
//go:uintptrescapes
func (d *Driver) result(e entry, args ...uintptr) Result {
	if d.called[e].Load() {
		return Result(callC(d.functions[e], args...))
	}
	var r uintptr
	signals.Preserve(func() { r = callC(d.functions[e], args...) })
	d.called[e].Store(true)
	return Result(r)
}

// call is result as an error: nil or a *CallError.
//
//go:uintptrescapes
func (d *Driver) call(e entry, args ...uintptr) error {
	if r := d.result(e, args...); r != Success {
		return d.callError(e, r)
	}
	return nil
}

func (d *Driver) callError(e entry, r Result) *CallError {
	text := func(e entry) string {
		var s *byte
		if d.result(e, uintptr(r), uintptr(unsafe.Pointer(&s))) != Success {
			return ""
		}
		return abi.GoString(s)
	}
	err := &CallError{Function: entries[e].name, Result: r, Name: text(cuGetErrorName), Text: text(cuGetErrorString)}
	if err.Name == "" {
		err.Name = r.Error()
	}
	if err.Text == "" {
		err.Text = "an error without a text"
	}
	return err
}
