// The C++ kit over graft_plugin.h. An operator is a class with
//
//   static graft::Operator Describe();                      name, inputs, outputs, attributes
//   explicit MyOp(const graft::CreateContext&);             reads attributes; cheap
//   void Infer(graft::InferContext&) const;                 types and shapes of outputs
//   uint64_t Workspace(const graft::WorkspaceContext&) const;   bytes; leave it out if none
//   void Run(const graft::RunContext&) const;               several at once on one object
//
// and GRAFT_PLUGIN(MyOp) makes the library: the C table, the ONNX Runtime custom operator and the
// ELF note. Methods may throw graft::Error (or anything): the kit turns exceptions into codes and
// messages.
#ifndef GRAFT_KIT_GRAFT_H_
#define GRAFT_KIT_GRAFT_H_

#include "graft/plugin.h"

#endif  // GRAFT_KIT_GRAFT_H_
