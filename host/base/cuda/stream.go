package cuda

import "unsafe"

// Stream is a queue of work: what is put in one runs in order. A nil *Stream is the default stream.
type Stream struct{ handle handle }

// StreamFlags say how a stream behaves towards the default stream.
type StreamFlags uint32

// Kinds of stream.
const (
	StreamDefault     StreamFlags = 0 // waits for the default stream, which waits for it
	StreamNonBlocking StreamFlags = 1 // neither
)

// MakeStream makes a stream.
func (c *Context) MakeStream(flags StreamFlags) (*Stream, error) {
	s := &Stream{handle{kind: "a stream", destroy: cuStreamDestroy}}
	err := c.create(&s.handle, cuStreamCreate, func(value *uintptr) error {
		return c.driver.call(cuStreamCreate, uintptr(unsafe.Pointer(value)), uintptr(flags))
	})
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Synchronize waits until the stream has done all that is in it, and gives the error of whatever failed.
// For the default stream there is [Context.Synchronize].
func (s *Stream) Synchronize() error {
	return s.run(cuStreamSynchronize, func(c *Context) error { return c.driver.call(cuStreamSynchronize, s.handle.value) })
}

// Query reports whether the stream has done all that is in it.
func (s *Stream) Query() (done bool, err error) {
	err = s.run(cuStreamQuery, func(c *Context) error {
		r := c.driver.result(cuStreamQuery, s.handle.value)
		done = r == Success
		if r == Success || r == NotReady {
			return nil
		}
		return c.driver.callError(cuStreamQuery, r)
	})
	return done, err
}

// Wait lets what is put into the stream from now on wait for the event's last Record.
func (s *Stream) Wait(event *Event) error {
	if event == nil {
		return badArgument(entries[cuStreamWaitEvent].name, "no event", "one of MakeEvent")
	}
	return event.handle.context.run(cuStreamWaitEvent, func() error {
		return event.handle.context.driver.call(cuStreamWaitEvent, s.value(), event.handle.value, 0)
	}, s.use(), &event.handle)
}

// Handle is the CUstream, for native code of others; 0 after Close and for the default stream.
func (s *Stream) Handle() uintptr {
	if s == nil || !s.handle.life.enter() {
		return 0
	}
	defer s.handle.life.exit()
	return s.handle.value
}

// Close destroys the stream. What is in it is still done.
func (s *Stream) Close() error {
	if s == nil {
		return nil
	}
	return s.handle.close()
}

func (s *Stream) run(e entry, f func(*Context) error) error {
	if s == nil {
		return badArgument(entries[e].name, "the default stream", "a stream of MakeStream, or Context.Synchronize")
	}
	return s.handle.context.run(e, func() error { return f(s.handle.context) }, &s.handle)
}

// value is for calls that have entered use.
func (s *Stream) value() uintptr {
	if s == nil {
		return 0
	}
	return s.handle.value
}

func (s *Stream) use() *handle {
	if s == nil {
		return nil
	}
	return &s.handle
}
