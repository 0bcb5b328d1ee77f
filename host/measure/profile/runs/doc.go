// Package runs runs a model with ONNX Runtime's profiler on, in a child process, and in turn without it, and says
// where the time of a run goes.
//
// The child writes into one folder, which this process makes and removes: the profile, and the graph that the runtime
// made of the model, with its weights, which nobody reads.
package runs
