// ONNX Runtime's element types as DLPack's and back, and the handling of its status objects.
#ifndef GRAFT_KIT_ORT_TYPES_H_
#define GRAFT_KIT_ORT_TYPES_H_

#include <string>

#include "graft/error.h"
#include "graft/ort_api.h"
#include "graft/type.h"

namespace graft::ort {

// The API version that every runtime of interest has (1.18 on), and all that the kit uses.
inline constexpr uint32_t kApiVersion = 18;

struct TypePair {
  ONNXTensorElementDataType onnx;
  DataType type;
};

inline constexpr TypePair kTypePairs[] = {
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT, kFloat32},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16, kFloat16},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64, kInt64},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32, kInt32},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL, kBool},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16, kBFloat16},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE, kFloat64},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8, kInt8},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8, kUInt8},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16, kInt16},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16, kUInt16},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32, kUInt32},
    {ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64, kUInt64},
};

inline DataType TypeFromOnnx(ONNXTensorElementDataType onnx) {
  for (const TypePair& pair : kTypePairs) {
    if (pair.onnx == onnx) return pair.type;
  }
  Unsupported("element type ", static_cast<int>(onnx), " of ONNX Runtime");
}

inline ONNXTensorElementDataType TypeToOnnx(DataType type) {
  for (const TypePair& pair : kTypePairs) {
    if (pair.type == type) return pair.onnx;
  }
  Unsupported("element type ", type, " in ONNX Runtime");
}

// Throws what a failed call of the runtime says.
inline void Check(const OrtApi* api, OrtStatus* status) {
  if (status == nullptr) return;
  const std::string text = api->GetErrorMessage(status);
  api->ReleaseStatus(status);
  throw Error(GRAFT_ERROR_INTERNAL, text);
}

// For calls whose failure is an answer: whether it succeeded.
inline bool Succeeds(const OrtApi* api, OrtStatus* status) {
  if (status == nullptr) return true;
  api->ReleaseStatus(status);
  return false;
}

inline OrtErrorCode CodeToOrt(int32_t code) {
  switch (code) {
    case GRAFT_ERROR_INVALID_ARGUMENT:
      return ORT_INVALID_ARGUMENT;
    case GRAFT_ERROR_UNSUPPORTED:
      return ORT_NOT_IMPLEMENTED;
    default:
      return ORT_FAIL;
  }
}

// Runs a body that throws, and turns what it throws into a status; `where` heads the text.
template <typename Body>
OrtStatus* GuardOrt(const OrtApi* api, const char* where, Body&& body) noexcept {
  char buffer[1024];
  graft_message message{sizeof message, nullptr, buffer, sizeof buffer};
  buffer[0] = 0;
  const int32_t code = Guard(&message, [&] {
    body();
    return GRAFT_OK;
  });
  if (code == GRAFT_OK) return nullptr;
  char text[1200];
  std::snprintf(text, sizeof text, "graft %s: %s", where, buffer);
  return api->CreateStatus(CodeToOrt(code), text);
}

}  // namespace graft::ort

#endif  // GRAFT_KIT_ORT_TYPES_H_
