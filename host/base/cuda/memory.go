package cuda

import (
	"fmt"
	"math"
	"unsafe"
)

// DevicePtr is an address in a device's memory. As a [Pointer] it is taken at its word: whether memory is
// there, and how much, is for the driver to find out.
type DevicePtr uint64

// Pointer is a place in device memory: a *Memory, a [Range] of one, or a DevicePtr that came from elsewhere.
type Pointer interface {
	// place is the address, how many bytes are known to be there (math.MaxInt64 where that is not known,
	// less than 0 where the place is outside of its memory), and what has to stay open.
	place() (address DevicePtr, size int64, owner *handle)
}

func (p DevicePtr) place() (DevicePtr, int64, *handle) { return p, math.MaxInt64, nil }

// Memory is memory on a device.
type Memory struct {
	handle handle
	size   int64
}

// Range is the rest of a Memory from an offset in bytes.
type Range struct {
	memory *Memory
	offset int64
}

// MemAlloc allocates memory on the device, at least 1 byte, aligned to 256. Its content is undefined.
func (c *Context) MemAlloc(bytes int64) (*Memory, error) {
	if bytes <= 0 {
		return nil, badArgument("cuMemAlloc", fmt.Sprintf("%d bytes", bytes), "at least 1")
	}
	m := &Memory{handle: handle{kind: "memory", destroy: cuMemFree}, size: bytes}
	err := c.create(&m.handle, cuMemAlloc, func(value *uintptr) error {
		return c.driver.call(cuMemAlloc, uintptr(unsafe.Pointer(value)), uintptr(bytes))
	})
	if err != nil {
		return nil, detail(err, "%d bytes", bytes)
	}
	return m, nil
}

// Size is the number of bytes.
func (m *Memory) Size() int64 { return m.size }

// Ptr is the address, 0 after Close.
func (m *Memory) Ptr() DevicePtr {
	if !m.handle.life.enter() {
		return 0
	}
	defer m.handle.life.exit()
	return DevicePtr(m.handle.value)
}

// At is the memory from an offset on, in bytes.
func (m *Memory) At(offset int64) Range { return Range{m, offset} }

// Close frees the memory, when the device has done what it was asked before.
func (m *Memory) Close() error { return m.handle.close() }

func (m *Memory) place() (DevicePtr, int64, *handle) {
	if m == nil {
		return 0, 0, nil
	}
	return DevicePtr(m.handle.value), m.size, &m.handle
}

func (r Range) place() (DevicePtr, int64, *handle) {
	address, size, owner := r.memory.place()
	if r.offset < 0 {
		return 0, -1, owner
	}
	return address + DevicePtr(r.offset), size - r.offset, owner
}

// MemInfo is the device's memory in bytes: what is free, and all of it.
func (c *Context) MemInfo() (free, total int64, err error) {
	err = c.run(cuMemGetInfo, func() error {
		return c.driver.call(cuMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	})
	return free, total, err
}

// HostMemory is memory of the host that stays where it is ("pinned"), so that a device can copy to and from
// it while the host does something else.
type HostMemory struct{ handle handle }

// MemAllocHost allocates pinned memory, at least 1 byte. All of the process's contexts may use it.
func (c *Context) MemAllocHost(bytes int) (*HostMemory, error) {
	const portable = 1 // CU_MEMHOSTALLOC_PORTABLE
	if bytes <= 0 {
		return nil, badArgument("cuMemHostAlloc", fmt.Sprintf("%d bytes", bytes), "at least 1")
	}
	m := &HostMemory{handle: handle{kind: "pinned memory", size: uintptr(bytes), destroy: cuMemFreeHost}}
	err := c.create(&m.handle, cuMemHostAlloc, func(value *uintptr) error {
		return c.driver.call(cuMemHostAlloc, uintptr(unsafe.Pointer(value)), uintptr(bytes), portable)
	})
	if err != nil {
		return nil, detail(err, "%d bytes", bytes)
	}
	return m, nil
}

// Bytes is the memory, nil after Close. It may not be used after Close, nor while a device writes to it.
func (m *HostMemory) Bytes() []byte { return HostSlice[byte](m) }

// Close frees the memory. Copies to and from it must have ended.
func (m *HostMemory) Close() error { return m.handle.close() }

// Number is a type of numbers as devices have them.
type Number interface {
	~int8 | ~uint8 | ~int16 | ~uint16 | ~int32 | ~uint32 | ~int64 | ~uint64 | ~float32 | ~float64
}

// HostSlice is pinned memory as numbers; see [HostMemory.Bytes].
func HostSlice[T Number](m *HostMemory) []T {
	if !m.handle.life.enter() {
		return nil
	}
	defer m.handle.life.exit()
	var zero T
	// The memory is the driver's, not the collector's.
	return unsafe.Slice(*(**T)(unsafe.Pointer(&m.handle.value)), m.handle.size/unsafe.Sizeof(zero))
}

// Bytes is a slice of numbers as bytes, which it shares.
func Bytes[T Number](s []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(zero)))
}
