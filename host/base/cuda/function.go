package cuda

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/opgraft/graft/host/base/abi"
)

// Function is a kernel of a module, and open as long as that is.
type Function struct {
	module     *Module
	name       string
	value      uintptr
	parameters []int // their sizes in bytes
	maxThreads int
	maxShared  atomic.Int64 // dynamic shared memory that a launch may request, in bytes
}

// FunctionAttribute is a CUfunction_attribute.
type FunctionAttribute int

// Properties of a function.
const (
	FuncMaxThreadsPerBlock    FunctionAttribute = 0
	FuncSharedSizeBytes       FunctionAttribute = 1 // static shared memory
	FuncConstSizeBytes        FunctionAttribute = 2
	FuncLocalSizeBytes        FunctionAttribute = 3 // a thread; more than 0 where registers were spilled
	FuncNumRegs               FunctionAttribute = 4 // registers a thread
	FuncPTXVersion            FunctionAttribute = 5 // 90 for compute_90
	FuncBinaryVersion         FunctionAttribute = 6 // 90 for sm_90
	FuncMaxDynamicSharedBytes FunctionAttribute = 8
)

// Function finds a kernel by the name that the code has for it: of C++ code the mangled one, unless it is
// extern "C".
func (m *Module) Function(name string) (*Function, error) {
	f := &Function{module: m, name: name}
	symbol := abi.CString(name)
	err := m.run(cuModuleGetFunction, func(c *Context) error {
		return c.driver.call(cuModuleGetFunction, uintptr(unsafe.Pointer(&f.value)), m.handle.value,
			uintptr(unsafe.Pointer(symbol)))
	})
	if err != nil {
		return nil, detail(err, "%q", name)
	}
	if err := f.findParameters(); err != nil {
		return nil, err
	}
	if f.maxThreads, err = f.Attribute(FuncMaxThreadsPerBlock); err != nil {
		return nil, err
	}
	shared, err := f.Attribute(FuncMaxDynamicSharedBytes)
	if err != nil {
		return nil, err
	}
	f.maxShared.Store(int64(shared))
	return f, nil
}

// findParameters asks for one parameter after the other: the driver says that one is too many, but not how
// many there are.
func (f *Function) findParameters() error {
	return f.module.run(cuFuncGetParamInfo, func(c *Context) error {
		for {
			var offset, size uintptr
			r := c.driver.result(cuFuncGetParamInfo, f.value, uintptr(len(f.parameters)), uintptr(unsafe.Pointer(&offset)),
				uintptr(unsafe.Pointer(&size)))
			if r == InvalidValue {
				return nil
			}
			if r != Success {
				return detail(c.driver.callError(cuFuncGetParamInfo, r), "%q", f.name)
			}
			f.parameters = append(f.parameters, int(size))
		}
	})
}

// Name is the name that Module.Function was asked for.
func (f *Function) Name() string { return f.name }

// Attribute is one of the function's properties, after compilation.
func (f *Function) Attribute(a FunctionAttribute) (int, error) {
	var v int32
	err := f.module.run(cuFuncGetAttribute, func(c *Context) error {
		return c.driver.call(cuFuncGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), f.value)
	})
	return int(v), detail(err, "attribute %d of %q", int(a), f.name)
}

// SetMaxDynamicSharedSize lets launches request this many bytes of dynamic shared memory, up to the device's
// MaxSharedMemoryPerBlockOptin less the static; without it the limit is MaxSharedMemoryPerBlock, 48 KiB,
// less the static.
func (f *Function) SetMaxDynamicSharedSize(bytes int) error {
	if bytes < 0 {
		return badArgument(entries[cuFuncSetAttribute].name, fmt.Sprintf("%d bytes", bytes), "0 or more")
	}
	err := f.module.run(cuFuncSetAttribute, func(c *Context) error {
		if err := c.driver.call(cuFuncSetAttribute, f.value, uintptr(FuncMaxDynamicSharedBytes), uintptr(bytes)); err != nil {
			return err
		}
		f.maxShared.Store(int64(bytes))
		return nil
	})
	return detail(err, "%d bytes of dynamic shared memory for %q", bytes, f.name)
}

// MaxActiveBlocksPerMultiprocessor is how many blocks of a number of threads, with some dynamic shared
// memory in bytes, run on a multiprocessor at once.
func (f *Function) MaxActiveBlocksPerMultiprocessor(threads, sharedMem int) (int, error) {
	var n int32
	err := f.module.run(cuOccupancyMaxActiveBlocksPerMultiprocessor, func(c *Context) error {
		return c.driver.call(cuOccupancyMaxActiveBlocksPerMultiprocessor, uintptr(unsafe.Pointer(&n)), f.value,
			uintptr(threads), uintptr(sharedMem))
	})
	return int(n), detail(err, "%d threads and %d bytes for %q", threads, sharedMem, f.name)
}

// MaxPotentialBlockSize is the number of threads a block that fills a multiprocessor best, and how many
// blocks it takes to fill the device. limit is the maximum of threads, 0 for no limit.
func (f *Function) MaxPotentialBlockSize(sharedMem, limit int) (blocks, threads int, err error) {
	var b, t int32
	err = f.module.run(cuOccupancyMaxPotentialBlockSize, func(c *Context) error {
		return c.driver.call(cuOccupancyMaxPotentialBlockSize, uintptr(unsafe.Pointer(&b)), uintptr(unsafe.Pointer(&t)),
			f.value, 0, uintptr(sharedMem), uintptr(limit))
	})
	return int(b), int(t), detail(err, "%d bytes for %q", sharedMem, f.name)
}
