package cuda

import (
	"fmt"
	"reflect"
	"unsafe"
)

// Dim3 counts blocks or threads in three directions. Y and Z of 0 are 1.
type Dim3 struct{ X, Y, Z int }

func (d Dim3) sizes() [3]int {
	sizes := [3]int{d.X, d.Y, d.Z}
	for i := 1; i < 3; i++ {
		if sizes[i] == 0 {
			sizes[i] = 1
		}
	}
	return sizes
}

// LaunchConfig says how a kernel runs.
type LaunchConfig struct {
	Grid      Dim3    // blocks
	Block     Dim3    // threads of a block
	SharedMem int     // dynamic shared memory of a block, in bytes
	Stream    *Stream // nil is the default stream
}

// Launch puts a kernel into a stream and returns. What fails while it runs is told by a later call, such as
// Stream.Synchronize.
//
// Arguments are numbers of a size that is in their type's name, bool, structs and arrays of these, and
// for pointers *Memory, Range and DevicePtr. int and uint are refused, because C's are of another size.
// Their number, and the size of each, are checked against the kernel's parameters, and the configuration
// against the limits of kernel and device; what a parameter means cannot be known. Memory that an argument
// names has to stay open until the kernel has ended.
func (f *Function) Launch(config LaunchConfig, args ...any) error {
	grid, block := config.Grid.sizes(), config.Block.sizes()
	if err := f.check(grid, block, config.SharedMem); err != nil {
		return err
	}
	values, uses, err := f.pack(args)
	if err != nil {
		return err
	}
	err = f.module.run(cuLaunchKernel, func(c *Context) error {
		return c.driver.call(cuLaunchKernel, f.value,
			uintptr(grid[0]), uintptr(grid[1]), uintptr(grid[2]), uintptr(block[0]), uintptr(block[1]), uintptr(block[2]),
			uintptr(config.SharedMem), config.Stream.value(), uintptr(unsafe.Pointer(unsafe.SliceData(values))), 0)
	}, append(uses, config.Stream.use())...)
	return detail(err, "%q, grid %v, block %v, %d bytes of dynamic shared memory", f.name, grid, block, config.SharedMem)
}

// check compares a launch with the limits.
func (f *Function) check(grid, block [3]int, shared int) error {
	refuse := func(found, need string) error {
		return badArgument("launch of "+f.name, found, need)
	}
	limits := f.module.handle.context.limits
	for i, axis := range []string{"x", "y", "z"} {
		if grid[i] < 1 || grid[i] > limits.grid[i] {
			return refuse(fmt.Sprintf("a grid of %d in %s", grid[i], axis), fmt.Sprintf("1 to %d", limits.grid[i]))
		}
		if block[i] < 1 || block[i] > limits.block[i] {
			return refuse(fmt.Sprintf("a block of %d in %s", block[i], axis), fmt.Sprintf("1 to %d", limits.block[i]))
		}
	}
	if threads := block[0] * block[1] * block[2]; threads > f.maxThreads {
		return refuse(fmt.Sprintf("a block of %d threads", threads),
			fmt.Sprintf("at most %d, for the registers that it takes", f.maxThreads))
	}
	if shared < 0 {
		return refuse(fmt.Sprintf("%d bytes of dynamic shared memory", shared), "0 or more")
	}
	if int64(shared) <= f.maxShared.Load() {
		return nil
	}
	// The limit is the kernel's, and may have been raised by another Function of it.
	limit, err := f.Attribute(FuncMaxDynamicSharedBytes)
	if err != nil {
		return err
	}
	if f.maxShared.Store(int64(limit)); shared > limit {
		return refuse(fmt.Sprintf("%d bytes of dynamic shared memory", shared),
			fmt.Sprintf("at most %d; raise it with SetMaxDynamicSharedSize", limit))
	}
	return nil
}

// pack gives pointers to copies of the arguments, as the kernel's parameters want them, and what has to
// stay open.
func (f *Function) pack(args []any) (values []unsafe.Pointer, uses []*handle, err error) {
	call := "launch of " + f.name
	if len(args) != len(f.parameters) {
		return nil, nil, badArgument(call, fmt.Sprintf("%d arguments", len(args)), fmt.Sprint(len(f.parameters)))
	}
	for i, arg := range args {
		if p, ok := arg.(Pointer); ok {
			address, size, owner := p.place()
			if size <= 0 {
				return nil, nil, badArgument(call, fmt.Sprintf("argument %d without memory", i),
					"a place in it, or DevicePtr(0) for a null pointer")
			}
			arg, uses = address, append(uses, owner)
		}
		v := reflect.ValueOf(arg)
		if !v.IsValid() || !fixed(v.Type()) {
			return nil, nil, badArgument(call, fmt.Sprintf("argument %d of type %T", i, arg),
				"a number of a size that is in its name, such as int32, or a *Memory, a Range or a DevicePtr")
		}
		if size := int(v.Type().Size()); size != f.parameters[i] {
			return nil, nil, badArgument(call, fmt.Sprintf("argument %d of type %T, %d bytes", i, arg, size),
				fmt.Sprintf("%d bytes", f.parameters[i]))
		}
		copied := reflect.New(v.Type())
		copied.Elem().Set(v)
		values = append(values, copied.UnsafePointer())
	}
	return values, uses, nil
}

// fixed reports whether a type has the same size and layout in C.
func fixed(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return true
	case reflect.Array:
		return t.Len() > 0 && fixed(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if !fixed(t.Field(i).Type) {
				return false
			}
		}
		return t.NumField() > 0
	}
	return false
}
