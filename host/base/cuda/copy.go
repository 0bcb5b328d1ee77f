package cuda

import (
	"fmt"
	"unsafe"
)

// MemcpyHtoD copies from the host to the device and returns when src may be changed again.
func (c *Context) MemcpyHtoD(dst Pointer, src []byte) error {
	to, owner, err := at(cuMemcpyHtoD, dst, int64(len(src)))
	if err != nil || len(src) == 0 {
		return err
	}
	return c.run(cuMemcpyHtoD, func() error {
		return c.driver.call(cuMemcpyHtoD, uintptr(to), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src)))
	}, owner)
}

// MemcpyDtoH copies from the device to the host and returns when dst is filled.
func (c *Context) MemcpyDtoH(dst []byte, src Pointer) error {
	from, owner, err := at(cuMemcpyDtoH, src, int64(len(dst)))
	if err != nil || len(dst) == 0 {
		return err
	}
	return c.run(cuMemcpyDtoH, func() error {
		return c.driver.call(cuMemcpyDtoH, uintptr(unsafe.Pointer(&dst[0])), uintptr(from), uintptr(len(dst)))
	}, owner)
}

// MemcpyDtoD copies on the device. The two places may not overlap.
func (c *Context) MemcpyDtoD(dst, src Pointer, bytes int64) error {
	to, owner, err := at(cuMemcpyDtoD, dst, bytes)
	if err != nil {
		return err
	}
	from, owner2, err := at(cuMemcpyDtoD, src, bytes)
	if err != nil || bytes == 0 {
		return err
	}
	return c.run(cuMemcpyDtoD, func() error {
		return c.driver.call(cuMemcpyDtoD, uintptr(to), uintptr(from), uintptr(bytes))
	}, owner, owner2)
}

// MemcpyHtoDAsync is MemcpyHtoD on a stream: it returns at once, and src may not be changed until the
// stream has come to the end of it. src must be in one of the context's [HostMemory]: the collector could
// free other memory under the device's hands.
func (c *Context) MemcpyHtoDAsync(dst Pointer, src []byte, stream *Stream) error {
	to, owner, err := at(cuMemcpyHtoDAsync, dst, int64(len(src)))
	if err != nil || len(src) == 0 {
		return err
	}
	pinned, err := c.pinned(cuMemcpyHtoDAsync, src)
	if err != nil {
		return err
	}
	return c.run(cuMemcpyHtoDAsync, func() error {
		return c.driver.call(cuMemcpyHtoDAsync, uintptr(to), uintptr(unsafe.Pointer(&src[0])), uintptr(len(src)),
			stream.value())
	}, owner, pinned, stream.use())
}

// MemcpyDtoHAsync is MemcpyDtoH on a stream: it returns at once, and dst is filled when the stream has come
// to the end of it. dst must be in one of the context's [HostMemory].
func (c *Context) MemcpyDtoHAsync(dst []byte, src Pointer, stream *Stream) error {
	from, owner, err := at(cuMemcpyDtoHAsync, src, int64(len(dst)))
	if err != nil || len(dst) == 0 {
		return err
	}
	pinned, err := c.pinned(cuMemcpyDtoHAsync, dst)
	if err != nil {
		return err
	}
	return c.run(cuMemcpyDtoHAsync, func() error {
		return c.driver.call(cuMemcpyDtoHAsync, uintptr(unsafe.Pointer(&dst[0])), uintptr(from), uintptr(len(dst)),
			stream.value())
	}, owner, pinned, stream.use())
}

// MemcpyDtoDAsync is MemcpyDtoD on a stream.
func (c *Context) MemcpyDtoDAsync(dst, src Pointer, bytes int64, stream *Stream) error {
	to, owner, err := at(cuMemcpyDtoDAsync, dst, bytes)
	if err != nil {
		return err
	}
	from, owner2, err := at(cuMemcpyDtoDAsync, src, bytes)
	if err != nil || bytes == 0 {
		return err
	}
	return c.run(cuMemcpyDtoDAsync, func() error {
		return c.driver.call(cuMemcpyDtoDAsync, uintptr(to), uintptr(from), uintptr(bytes), stream.value())
	}, owner, owner2, stream.use())
}

// MemsetD8 sets count bytes. It may return before the device is done, as CUDA's does.
func (c *Context) MemsetD8(dst Pointer, value uint8, count int64) error {
	return c.memset(cuMemsetD8, dst, uintptr(value), count, 1)
}

// MemsetD32 sets count words of 4 bytes, of which the first is aligned.
func (c *Context) MemsetD32(dst Pointer, value uint32, count int64) error {
	return c.memset(cuMemsetD32, dst, uintptr(value), count, 4)
}

// MemsetD8Async is MemsetD8 on a stream.
func (c *Context) MemsetD8Async(dst Pointer, value uint8, count int64, stream *Stream) error {
	return c.memset(cuMemsetD8Async, dst, uintptr(value), count, 1, stream)
}

// MemsetD32Async is MemsetD32 on a stream.
func (c *Context) MemsetD32Async(dst Pointer, value uint32, count int64, stream *Stream) error {
	return c.memset(cuMemsetD32Async, dst, uintptr(value), count, 4, stream)
}

// memset is for the forms without a stream and, with one, for those with.
func (c *Context) memset(e entry, dst Pointer, value uintptr, count, width int64, stream ...*Stream) error {
	if count < 0 || count > maxBytes/width {
		return badArgument(entries[e].name, fmt.Sprintf("a count of %d", count), "0 or more, and not more than memory has")
	}
	to, owner, err := at(e, dst, count*width)
	if err != nil || count == 0 {
		return err
	}
	if uint64(to)%uint64(width) != 0 {
		return badArgument(entries[e].name, fmt.Sprintf("the address 0x%x", uint64(to)),
			fmt.Sprintf("a multiple of %d", width))
	}
	if len(stream) == 0 {
		return c.run(e, func() error { return c.driver.call(e, uintptr(to), value, uintptr(count)) }, owner)
	}
	return c.run(e, func() error {
		return c.driver.call(e, uintptr(to), value, uintptr(count), stream[0].value())
	}, owner, stream[0].use())
}

// maxBytes is more than any device's memory.
const maxBytes = 1 << 50

// at is the address of a place with room for n bytes, and what has to stay open.
func at(e entry, p Pointer, bytes int64) (DevicePtr, *handle, error) {
	name := entries[e].name
	if p == nil {
		return 0, nil, badArgument(name, "no place in device memory", "a *Memory, a Range or a DevicePtr")
	}
	if bytes < 0 {
		return 0, nil, badArgument(name, fmt.Sprintf("%d bytes", bytes), "0 or more")
	}
	address, size, owner := p.place()
	if size < 0 {
		return 0, nil, badArgument(name, "an offset outside of the memory", "0 to its size")
	}
	if bytes > size {
		return 0, nil, badArgument(name, fmt.Sprintf("%d bytes where there are %d", bytes, size), "no more than there are")
	}
	return address, owner, nil
}

// pinned is the owner of pinned memory.
func (c *Context) pinned(e entry, b []byte) (*handle, error) {
	low := uintptr(unsafe.Pointer(&b[0]))
	high := low + uintptr(len(b))
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.owned {
		if h.destroy == cuMemFreeHost && low >= h.value && high <= h.value+h.size {
			return h, nil
		}
	}
	return nil, badArgument(entries[e].name, "memory of the host that may move or be freed",
		"memory of Context.MemAllocHost that is open")
}
