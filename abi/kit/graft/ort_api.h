// ONNX Runtime's C interface: its own header where the compiler finds it, else what the kit uses of
// it.
#ifndef GRAFT_KIT_ORT_API_H_
#define GRAFT_KIT_ORT_API_H_

#if __has_include(<onnxruntime_c_api.h>)
#include <onnxruntime_c_api.h>
#else
#include "graft_ort.h"
#endif

#endif  // GRAFT_KIT_ORT_API_H_
