package cuda_test

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/opgraft/graft/host/base/cuda"
	"github.com/opgraft/graft/internal/must"
)

// TestThreads: a thread has the context during a call and in Do, and no longer.
func TestThreads(t *testing.T) {
	x := makeThings(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := x.context.Synchronize(); err != nil || x.fake.Get("current") != 0 {
		t.Fatalf("after a call %d contexts are current: %v", x.fake.Get("current"), err)
	}
	wrong := errors.New("wrong")
	err := x.context.Do(func() error {
		if err := x.stream.Synchronize(); err != nil || x.fake.Get("current") != 1 {
			t.Errorf("in Do %d contexts are current: %v", x.fake.Get("current"), err)
		}
		return x.context.Do(func() error {
			must.Equal(t, x.fake.Get("current"), 1)
			return wrong
		})
	})
	if err != wrong || x.fake.Get("current") != 0 {
		t.Errorf("after Do %d contexts are current: %v", x.fake.Get("current"), err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = x.context.Do(func() error { panic("in Do") })
	}()
	must.Equal(t, x.fake.Get("current"), 0)
	x.fake.Set("fail", "cuCtxPopCurrent:1:700")
	must.Fail(t, x.context.Synchronize(), cuda.IllegalAddress)
	must.Succeed(t, x.context.Do(x.context.Close), "Close in Do")
}

// TestManyGoroutines use one context, and close it under their own feet.
func TestManyGoroutines(t *testing.T) {
	x := makeThings(t)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for {
				if err := useAndClose(x); errors.Is(err, cuda.ErrClosed) {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	time.Sleep(200 * time.Millisecond)
	must.Succeed(t, x.context.Close())
	all.Wait()
}

func useAndClose(x *things) error {
	stream, err := x.context.MakeStream(cuda.StreamDefault)
	if err != nil {
		return err
	}
	memory, err := x.context.MemAlloc(64)
	if err != nil {
		return err
	}
	config := cuda.LaunchConfig{Grid: cuda.Dim3{X: 1}, Block: cuda.Dim3{X: 16}, Stream: stream}
	if err := x.context.MemsetD32Async(memory, 0, 16, stream); err != nil {
		return err
	}
	if err := x.scale.Launch(config, memory, memory, float32(1), uint32(16)); err != nil {
		return err
	}
	var other sync.WaitGroup // closes while this one waits
	other.Go(func() { _ = stream.Close() })
	if err := stream.Synchronize(); err != nil && !errors.Is(err, cuda.ErrClosed) {
		return err
	}
	other.Wait()
	got := make([]float32, 16)
	if err := x.context.MemcpyDtoH(cuda.Bytes(got), memory); err != nil {
		return err
	}
	if got[15] != 15 {
		return fmt.Errorf("scale gives %v", got)
	}
	return memory.Close()
}

// TestCloseWaits for a call that another goroutine makes.
func TestCloseWaits(t *testing.T) {
	for name, closeOne := range map[string]func(*things) error{
		"stream":  func(x *things) error { return x.stream.Close() },
		"context": func(x *things) error { return x.context.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			x := makeThings(t)
			x.fake.Set("slow", "50")
			done := make(chan error)
			go func() { done <- x.stream.Synchronize() }()
			for x.fake.Get("waiting") == 0 {
				runtime.Gosched()
			}
			must.Succeed(t, closeOne(x))
			must.Equal(t, x.fake.Get("waiting"), 0)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStreamsAreAsynchronous: nothing waits that was not asked to.
func TestStreamsAreAsynchronous(t *testing.T) {
	x := makeThings(t)
	in, out := x.host.Bytes()[:8], x.host.Bytes()[8:16]
	copy(in, "graphics")
	copy(out, "        ")
	for _, err := range []error{
		x.event.Record(x.stream),
		x.context.MemcpyHtoDAsync(x.memory, in, x.stream),
		x.context.MemcpyDtoHAsync(out, x.memory, x.stream),
	} {
		must.Succeed(t, err)
	}
	for name, query := range map[string]func() (bool, error){"stream": x.stream.Query, "event": x.event.Query} {
		if done, err := query(); done || err != nil {
			t.Errorf("the %s is done: %v, %v", name, done, err)
		}
	}
	must.Fail(t, must.Error(x.event.Elapsed(x.event)), cuda.NotReady)
	must.Fail(t, must.Error(x.event.Elapsed(x.second)), cuda.InvalidHandle)
	if err := x.stream.Synchronize(); err != nil || string(out) != "graphics" {
		t.Errorf("copied %q: %v", out, err)
	}
	end := must.Value(x.context.MakeEvent(cuda.EventDefault))(t)
	must.Succeed(t, end.Record(x.stream))
	must.Succeed(t, end.Synchronize())
	if took, err := x.event.Elapsed(end); took != 750*time.Microsecond || err != nil { // three steps of driver.c
		t.Errorf("two copies and an event took %v: %v", took, err)
	}
}
