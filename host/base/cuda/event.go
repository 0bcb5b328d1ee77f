package cuda

import (
	"time"
	"unsafe"
)

// Event is a mark in a stream: to wait for, and to measure time between two.
type Event struct{ handle handle }

// EventFlags say what an event is for.
type EventFlags uint32

// Kinds of event; they can be combined.
const (
	EventDefault       EventFlags = 0
	EventBlockingSync  EventFlags = 1 // Synchronize sleeps instead of spinning
	EventDisableTiming EventFlags = 2 // no Elapsed, and quicker
)

// MakeEvent makes an event that has not been recorded.
func (c *Context) MakeEvent(flags EventFlags) (*Event, error) {
	e := &Event{handle{kind: "an event", destroy: cuEventDestroy}}
	err := c.create(&e.handle, cuEventCreate, func(value *uintptr) error {
		return c.driver.call(cuEventCreate, uintptr(unsafe.Pointer(value)), uintptr(flags))
	})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Record puts the event into a stream, after what is in it.
func (e *Event) Record(stream *Stream) error {
	return e.run(cuEventRecord, func(c *Context) error {
		return c.driver.call(cuEventRecord, e.handle.value, stream.value())
	}, stream.use())
}

// Synchronize waits until a stream has come to the event's last Record; without one it returns at once.
func (e *Event) Synchronize() error {
	return e.run(cuEventSynchronize, func(c *Context) error { return c.driver.call(cuEventSynchronize, e.handle.value) })
}

// Query reports whether a stream has come to the event's last Record; true without one.
func (e *Event) Query() (done bool, err error) {
	err = e.run(cuEventQuery, func(c *Context) error {
		r := c.driver.result(cuEventQuery, e.handle.value)
		done = r == Success
		if r == Success || r == NotReady {
			return nil
		}
		return c.driver.callError(cuEventQuery, r)
	})
	return done, err
}

// Elapsed is the time from this event to another, by the device's clock, which ticks about every half
// microsecond. Both must have been reached: errors.Is(err, NotReady) says that one has not.
func (e *Event) Elapsed(end *Event) (time.Duration, error) {
	if end == nil {
		return 0, badArgument(entries[cuEventElapsedTime].name, "no second event", "one of MakeEvent")
	}
	var milliseconds float32
	err := e.run(cuEventElapsedTime, func(c *Context) error {
		return c.driver.call(cuEventElapsedTime, uintptr(unsafe.Pointer(&milliseconds)), e.handle.value, end.handle.value)
	}, &end.handle)
	return time.Duration(float64(milliseconds) * float64(time.Millisecond)), err
}

// Close destroys the event.
func (e *Event) Close() error {
	if e == nil {
		return nil
	}
	return e.handle.close()
}

func (e *Event) run(call entry, f func(*Context) error, uses ...*handle) error {
	if e == nil {
		return badArgument(entries[call].name, "no event", "one of MakeEvent")
	}
	c := e.handle.context
	return c.run(call, func() error { return f(c) }, append(uses, &e.handle)...)
}
