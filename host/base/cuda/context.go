package cuda

import (
	"errors"
	"runtime"
	"slices"
	"sync"
	"unsafe"

	"github.com/opgraft/graft/host/base/diagnostic"
)

// Context is a device's primary context: its memory, modules and streams in this process.
type Context struct {
	driver *Driver
	device Device
	value  uintptr
	limits limits
	life   life

	mu    sync.Mutex
	owned []*handle // oldest first
}

// limits are what a launch is checked against.
type limits struct {
	grid, block [3]int
}

// PrimaryContext makes the device's primary context, or shares the one that other code of this process,
// such as ONNX Runtime, has made. Each needs a Close.
func (d Device) PrimaryContext() (*Context, error) {
	c := &Context{driver: d.driver, device: d}
	for i, a := range []DeviceAttribute{MaxGridDimX, MaxGridDimY, MaxGridDimZ, MaxBlockDimX, MaxBlockDimY, MaxBlockDimZ} {
		v, err := d.Attribute(a)
		if err != nil {
			return nil, err
		}
		if i < 3 {
			c.limits.grid[i] = v
		} else {
			c.limits.block[i-3] = v
		}
	}
	if err := d.call(cuDevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&c.value)), uintptr(d.handle)); err != nil {
		return nil, err
	}
	return c, nil
}

// Device is the device that the context is of.
func (c *Context) Device() Device { return c.device }

// Handle is the CUcontext, for native code of others; 0 after Close.
func (c *Context) Handle() uintptr {
	if !c.life.enter() {
		return 0
	}
	defer c.life.exit()
	return c.value
}

// Close closes what was made in the context and is still open, the newest first, and gives the context
// back. It waits for calls that run. The error joins all that went wrong; the context is closed anyway.
func (c *Context) Close() error {
	if c == nil || !c.life.end() {
		return nil
	}
	var failed []error
	if len(c.owned) > 0 { // no call runs any more, so nobody else changes the list
		failed = append(failed, c.current(func() error {
			var failed []error
			for _, h := range slices.Backward(c.owned) {
				h.life.end()
				failed = append(failed, c.driver.call(h.destroy, h.value))
			}
			return errors.Join(failed...)
		}))
		c.owned = nil
	}
	failed = append(failed, c.device.call(cuDevicePrimaryCtxRelease, uintptr(c.device.handle)))
	return errors.Join(failed...)
}

// Do calls f with the context current, on a thread that is f's until it returns. Methods called in f are
// quicker than outside by what it takes to make a context current; native code that works on the current
// context can be called in it. Goroutines that f starts are not part of it. f's error is returned.
func (c *Context) Do(f func() error) error {
	if !c.life.enter() {
		return c.closed("Context.Do")
	}
	// f is not counted as a call that Close waits for: it may end with one.
	c.life.exit()
	return c.current(f)
}

// Synchronize waits until the device has done all that was asked of it in this context, and gives the
// error of whatever failed.
func (c *Context) Synchronize() error {
	return c.run(cuCtxSynchronize, func() error { return c.driver.call(cuCtxSynchronize) })
}

// run makes a call in the context with the handles that it uses, nil ones aside, which stay open until it returns.
func (c *Context) run(e entry, f func() error, uses ...*handle) error {
	name := entries[e].name
	if c == nil {
		return badArgument(name, "no context", "one of Device.PrimaryContext")
	}
	if !c.life.enter() {
		return c.closed(name)
	}
	defer c.life.exit()
	for _, h := range uses {
		if h == nil {
			continue
		}
		if h.context != c {
			return badArgument(name, h.kind+" of another context", "all of one")
		}
		if !h.life.enter() {
			return h.closed(name)
		}
		defer h.life.exit()
	}
	return c.current(f)
}

// current calls f on a thread that has the context current and is held meanwhile.
func (c *Context) current(f func() error) (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var now uintptr
	if err := c.driver.call(cuCtxGetCurrent, uintptr(unsafe.Pointer(&now))); err != nil {
		return err
	}
	if now == c.value {
		return f()
	}
	if err := c.driver.call(cuCtxPushCurrent, c.value); err != nil {
		return err
	}
	defer func() {
		var popped uintptr
		if failed := c.driver.call(cuCtxPopCurrent, uintptr(unsafe.Pointer(&popped))); err == nil {
			err = failed
		}
	}()
	return f()
}

// create makes something that the context then owns: create's call writes what it made to its argument.
func (c *Context) create(h *handle, e entry, call func(value *uintptr) error) error {
	h.context = c
	return c.run(e, func() error {
		if err := call(&h.value); err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		c.owned = append(c.owned, h)
		return nil
	})
}

func (c *Context) disown(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := slices.Index(c.owned, h); at >= 0 {
		c.owned = slices.Delete(c.owned, at, at+1)
	}
}

func (c *Context) closed(call string) error {
	return &diagnostic.Error{Kind: ErrClosed, Path: call, Found: "found a context that is closed"}
}
