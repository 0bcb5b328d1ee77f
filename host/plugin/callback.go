package plugin

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/ebitengine/purego"

	"github.com/opgraft/graft/host/base/abi"
	"github.com/opgraft/graft/host/base/diagnostic"
	"github.com/opgraft/graft/host/base/threads"
)

// purego gives out a limited number of callbacks and never takes one back, so each kind is made once and
// gets its Go value through the context pointer that C carries. The struct that C reads that pointer from
// holds the value for the length of the call.

// logger is the context of logLine.
type logger struct{ log func(level int, text string) }

var logLine = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(context *logger, level int32, text *byte) {
		context.log(int(level), diagnostic.Printable(strings.TrimSpace(abi.GoString(text))))
	})
})

// team is the context of parallelFor.
type team struct {
	threads uint64
	pool    *threads.Pool // nil: goroutines begin and end with each call
}

var parallelFor = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(context *team, count uint64, task, taskContext uintptr) int32 {
		if context.pool != nil {
			context.pool.Do(count, func(i uint64) { purego.SyscallN(task, taskContext, uintptr(i)) })
			return abi.OK
		}
		var (
			next atomic.Uint64
			all  sync.WaitGroup
		)
		work := func() {
			for i := next.Add(1) - 1; i < count; i = next.Add(1) - 1 {
				purego.SyscallN(task, taskContext, uintptr(i))
			}
		}
		for range max(min(context.threads, count), 1) - 1 {
			all.Go(work)
		}
		work()
		all.Wait()
		return abi.OK
	})
})

// emitter is the context of emit.
type emitter struct {
	take func(name string, tensor *abi.Tensor) int32
}

var emit = sync.OnceValue(func() uintptr {
	return purego.NewCallback(func(context *emitter, name *byte, tensor *abi.Tensor) int32 {
		return context.take(abi.GoString(name), tensor)
	})
})
