// Package cuda is CUDA's driver API in Go: devices, memory, streams, events, modules and launches, without
// cgo, headers or a toolkit. The driver's library is looked for when it is first needed, so a program that
// imports this package runs on machines without a GPU too, and is told so by an error:
//
//	devices, err := cuda.Devices()
//	if errors.Is(err, cuda.ErrNoDriver) {
//		// most machines
//	}
//
// [Error] says what was found, what is needed and what to do; [CallError] is a failed call, with CUDA's name
// for it and its text.
//
// # Contexts and threads
//
// Everything but questions about devices happens in a [Context], the device's primary one, which ONNX
// Runtime and CUDA's runtime library in this process use as well. In C a context is current on a thread;
// goroutines change threads. So every method here makes the context current for the length of its call, on
// a thread that it holds meanwhile, and leaves the thread as it was. [Context.Do] does so once for many
// calls, and for native code of others that expects a current context. All methods may be called from any
// goroutine.
//
//	context, err := devices[0].PrimaryContext()
//	...
//	defer context.Close()
//	module, err := context.LoadModuleData(ptx)
//	add, err := module.Function("add")
//	sum, err := context.MemAlloc(4 * n)
//	err = add.Launch(cuda.LaunchConfig{Grid: cuda.Dim3{X: (n + 255) / 256}, Block: cuda.Dim3{X: 256}}, sum, int32(n))
//
// # Handles
//
// A Context, a [Stream], an [Event], a [Module], [Memory] and [HostMemory] have a method Close. Close waits
// for calls that other goroutines make with the handle; a second Close does nothing; a call after it is an
// error of kind ErrClosed. Closing a context closes what was made in it.
//
// # Streams
//
// A nil *Stream is the legacy default stream, which waits for all others but those made with
// StreamNonBlocking, as in CUDA.
//
// # Signals
//
// CUDA's driver installs signal handlers, without the flag that Go's runtime needs, when it starts and at
// some first uses. Loading, starting and the first call of every function are therefore wrapped in
// [github.com/opgraft/graft/host/base/cuda/signals.Preserve], and Go's handlers survive. Code that reaches CUDA by
// other ways, such as a session of ONNX Runtime, has to do the same.
package cuda
