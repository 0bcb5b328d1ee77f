// Package isolation runs a plugin's kernels in a worker process, so that a crash, an exit or a hang of theirs is an
// error of a run.
//
// The plugin's library is never loaded here. In its place stand operators of ONNX Runtime's whose kernels are Go
// (host/ort): one puts its inputs into memory that the two processes share, wakes a thread of the worker's that waits
// for it, and takes the outputs from there. The worker makes the plugin's kernels through its C ABI, as ONNX Runtime
// would through the plugin's own operators.
//
// What the worker says is not trusted. The shared memory cannot be cut short, what is read of it is copied before it
// is looked at, shapes and places are bounded by the memory of the call, and who waits looks at a clock. Inputs that
// are the same in every run lie in memory that the worker can only read: what a crash leaves behind is no input of
// what runs next. Each worker has memory of its own.
//
// A worker that ended is started again, after a while that doubles where it ends at once, and not for ever: see
// Options. Until it is there, and after it was given up, runs are those of the unpatched model.
package isolation
