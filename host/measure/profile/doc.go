// Package profile says where the time of a model's runs goes: it reads the profiles that ONNX Runtime writes, and
// attributes what it reads to the nodes and blocks of the model that was run, through what the runtime fused and
// renamed.
//
// A profile is data of a process that ran code which may not be trusted. It is read as a stream, in bounded memory,
// and what does not fit together is an error that says where.
package profile
