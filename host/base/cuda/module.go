package cuda

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
)

// Module is code on a device.
type Module struct{ handle handle }

// LoadModule loads code from a file: PTX, a cubin or a fatbin.
func (c *Context) LoadModule(path string) (*Module, error) {
	image, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	m, err := c.LoadModuleData(image)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// LoadModuleData loads code: PTX, which the driver compiles now, a cubin or a fatbin. Where it does not
// compile, the error has the compiler's words.
func (c *Context) LoadModuleData(image []byte) (*Module, error) {
	const (
		errorLog     = 5 // CU_JIT_ERROR_LOG_BUFFER
		errorLogSize = 6 // CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES
	)
	if len(image) == 0 {
		return nil, badArgument("cuModuleLoadData", "an empty image", "PTX, a cubin or a fatbin")
	}
	image = append(bytes.Clone(image), 0) // PTX ends with one, and does not say its length
	log := make([]byte, 8192)
	options := &[2]int32{errorLog, errorLogSize}
	values := &struct {
		buffer *byte
		size   uintptr
	}{&log[0], uintptr(len(log))}
	m := &Module{handle{kind: "a module", destroy: cuModuleUnload}}
	err := c.create(&m.handle, cuModuleLoadDataEx, func(value *uintptr) error {
		return c.driver.call(cuModuleLoadDataEx, uintptr(unsafe.Pointer(value)), uintptr(unsafe.Pointer(&image[0])),
			uintptr(len(options)), uintptr(unsafe.Pointer(options)), uintptr(unsafe.Pointer(values)))
	})
	if err != nil {
		log[len(log)-1] = 0
		if words := strings.TrimSpace(abi.GoString(&log[0])); words != "" {
			err = detail(err, "%s", words)
		}
		return nil, err
	}
	return m, nil
}

// Global is the address of a variable of the module, and its size in bytes. It is valid until Close.
func (m *Module) Global(name string) (DevicePtr, int64, error) {
	var p, size uintptr
	symbol := abi.CString(name)
	err := m.run(cuModuleGetGlobal, func(c *Context) error {
		return c.driver.call(cuModuleGetGlobal, uintptr(unsafe.Pointer(&p)), uintptr(unsafe.Pointer(&size)), m.handle.value,
			uintptr(unsafe.Pointer(symbol)))
	})
	return DevicePtr(p), int64(size), detail(err, "%q", name)
}

// Close unloads the code. Its functions cannot be used after it.
func (m *Module) Close() error {
	if m == nil {
		return nil
	}
	return m.handle.close()
}

func (m *Module) run(e entry, f func(*Context) error, uses ...*handle) error {
	if m == nil {
		return badArgument(entries[e].name, "no module", "one of LoadModule or LoadModuleData")
	}
	c := m.handle.context
	return c.run(e, func() error { return f(c) }, append(uses, &m.handle)...)
}
