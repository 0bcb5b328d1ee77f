/* Code generated from onnxruntime_c_api.h by abi/gen. DO NOT EDIT.
 *
 * What graft's kits use of ONNX Runtime's C interface, version 18: names, numbers and the places of functions in
 * its tables, taken from onnxruntime_c_api.h. With that header in place of this one the kits do the same.
 *
 * ONNX Runtime is Copyright (c) Microsoft Corporation, under the MIT License:
 * Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated
 * documentation files (the "Software"), to deal in the Software without restriction, including without limitation
 * the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to
 * permit persons to whom the Software is furnished to do so, subject to the following conditions: The above
 * copyright notice and this permission notice shall be included in all copies or substantial portions of the
 * Software. THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT
 * LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT
 * SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF
 * CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS
 * IN THE SOFTWARE.
 */
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, dead_code)]

use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub struct OrtCustomOpDomain {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct OrtKernelContext {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct OrtKernelInfo {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct OrtLogger {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct OrtMemoryInfo {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct OrtOpAttr {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct OrtSessionOptions {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct OrtShapeInferContext {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct OrtStatus {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct OrtTensorTypeAndShapeInfo {
    _opaque: [u8; 0],
}

#[repr(C)]
pub struct OrtValue {
    _opaque: [u8; 0],
}

pub type ONNXTensorElementDataType = c_int;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED: ONNXTensorElementDataType = 0;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT: ONNXTensorElementDataType = 1;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8: ONNXTensorElementDataType = 2;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8: ONNXTensorElementDataType = 3;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16: ONNXTensorElementDataType = 4;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16: ONNXTensorElementDataType = 5;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32: ONNXTensorElementDataType = 6;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64: ONNXTensorElementDataType = 7;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_STRING: ONNXTensorElementDataType = 8;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL: ONNXTensorElementDataType = 9;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16: ONNXTensorElementDataType = 10;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE: ONNXTensorElementDataType = 11;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32: ONNXTensorElementDataType = 12;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64: ONNXTensorElementDataType = 13;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX64: ONNXTensorElementDataType = 14;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_COMPLEX128: ONNXTensorElementDataType = 15;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16: ONNXTensorElementDataType = 16;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FN: ONNXTensorElementDataType = 17;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E4M3FNUZ: ONNXTensorElementDataType = 18;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2: ONNXTensorElementDataType = 19;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E5M2FNUZ: ONNXTensorElementDataType = 20;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT4: ONNXTensorElementDataType = 21;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_INT4: ONNXTensorElementDataType = 22;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT4E2M1: ONNXTensorElementDataType = 23;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT2: ONNXTensorElementDataType = 24;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_INT2: ONNXTensorElementDataType = 25;
pub const ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT8E8M0: ONNXTensorElementDataType = 26;

pub type OrtLoggingLevel = c_int;
pub const ORT_LOGGING_LEVEL_VERBOSE: OrtLoggingLevel = 0;
pub const ORT_LOGGING_LEVEL_INFO: OrtLoggingLevel = 1;
pub const ORT_LOGGING_LEVEL_WARNING: OrtLoggingLevel = 2;
pub const ORT_LOGGING_LEVEL_ERROR: OrtLoggingLevel = 3;
pub const ORT_LOGGING_LEVEL_FATAL: OrtLoggingLevel = 4;

pub type OrtOpAttrType = c_int;
pub const ORT_OP_ATTR_UNDEFINED: OrtOpAttrType = 0;
pub const ORT_OP_ATTR_INT: OrtOpAttrType = 1;
pub const ORT_OP_ATTR_INTS: OrtOpAttrType = 2;
pub const ORT_OP_ATTR_FLOAT: OrtOpAttrType = 3;
pub const ORT_OP_ATTR_FLOATS: OrtOpAttrType = 4;
pub const ORT_OP_ATTR_STRING: OrtOpAttrType = 5;
pub const ORT_OP_ATTR_STRINGS: OrtOpAttrType = 6;
pub const ORT_OP_ATTR_GRAPH: OrtOpAttrType = 7;
pub const ORT_OP_ATTR_TENSOR: OrtOpAttrType = 8;

pub type OrtErrorCode = c_int;
pub const ORT_OK: OrtErrorCode = 0;
pub const ORT_FAIL: OrtErrorCode = 1;
pub const ORT_INVALID_ARGUMENT: OrtErrorCode = 2;
pub const ORT_NO_SUCHFILE: OrtErrorCode = 3;
pub const ORT_NO_MODEL: OrtErrorCode = 4;
pub const ORT_ENGINE_ERROR: OrtErrorCode = 5;
pub const ORT_RUNTIME_EXCEPTION: OrtErrorCode = 6;
pub const ORT_INVALID_PROTOBUF: OrtErrorCode = 7;
pub const ORT_MODEL_LOADED: OrtErrorCode = 8;
pub const ORT_NOT_IMPLEMENTED: OrtErrorCode = 9;
pub const ORT_INVALID_GRAPH: OrtErrorCode = 10;
pub const ORT_EP_FAIL: OrtErrorCode = 11;
pub const ORT_MODEL_LOAD_CANCELED: OrtErrorCode = 12;
pub const ORT_MODEL_REQUIRES_COMPILATION: OrtErrorCode = 13;
pub const ORT_NOT_FOUND: OrtErrorCode = 14;
pub const ORT_DEVICE_RESET: OrtErrorCode = 15;

pub type OrtMemType = c_int;
pub const OrtMemTypeCPUInput: OrtMemType = -2;
pub const OrtMemTypeCPUOutput: OrtMemType = -1;
pub const OrtMemTypeCPU: OrtMemType = -1;
pub const OrtMemTypeDefault: OrtMemType = 0;

pub type OrtMemoryInfoDeviceType = c_int;
pub const OrtMemoryInfoDeviceType_CPU: OrtMemoryInfoDeviceType = 0;
pub const OrtMemoryInfoDeviceType_GPU: OrtMemoryInfoDeviceType = 1;
pub const OrtMemoryInfoDeviceType_FPGA: OrtMemoryInfoDeviceType = 2;
pub const OrtMemoryInfoDeviceType_NPU: OrtMemoryInfoDeviceType = 3;

pub type OrtCustomOpInputOutputCharacteristic = c_int;
pub const INPUT_OUTPUT_REQUIRED: OrtCustomOpInputOutputCharacteristic = 0;
pub const INPUT_OUTPUT_OPTIONAL: OrtCustomOpInputOutputCharacteristic = 1;
pub const INPUT_OUTPUT_VARIADIC: OrtCustomOpInputOutputCharacteristic = 2;

#[repr(C)]
pub struct OrtAllocator {
    pub version: u32,
    pub Alloc: Option<unsafe extern "C" fn(this_: *mut OrtAllocator, size: usize) -> *mut c_void>,
    pub Free: Option<unsafe extern "C" fn(this_: *mut OrtAllocator, p: *mut c_void)>,
    pub Info: Option<unsafe extern "C" fn(this_: *const OrtAllocator) -> *const OrtMemoryInfo>,
}

#[repr(C)]
pub struct OrtApiBase {
    pub GetApi: Option<unsafe extern "C" fn(version: u32) -> *const OrtApi>,
    pub GetVersionString: Option<unsafe extern "C" fn() -> *const c_char>,
}

#[repr(C)]
pub struct OrtApi {
    pub CreateStatus: Option<unsafe extern "C" fn(code: OrtErrorCode, msg: *const c_char) -> *mut OrtStatus>,
    pub other_1: [*mut c_void; 1],
    pub GetErrorMessage: Option<unsafe extern "C" fn(status: *const OrtStatus) -> *const c_char>,
    pub other_3: [*mut c_void; 23],
    pub CreateCustomOpDomain: Option<unsafe extern "C" fn(domain: *const c_char, out: *mut *mut OrtCustomOpDomain) -> *mut OrtStatus>,
    pub CustomOpDomain_Add: Option<unsafe extern "C" fn(custom_op_domain: *mut OrtCustomOpDomain, op: *const OrtCustomOp) -> *mut OrtStatus>,
    pub AddCustomOpDomain: Option<unsafe extern "C" fn(options: *mut OrtSessionOptions, custom_op_domain: *mut OrtCustomOpDomain) -> *mut OrtStatus>,
    pub other_29: [*mut c_void; 22],
    pub GetTensorMutableData: Option<unsafe extern "C" fn(value: *mut OrtValue, out: *mut *mut c_void) -> *mut OrtStatus>,
    pub other_52: [*mut c_void; 5],
    pub CreateTensorTypeAndShapeInfo: Option<unsafe extern "C" fn(out: *mut *mut OrtTensorTypeAndShapeInfo) -> *mut OrtStatus>,
    pub SetTensorElementType: Option<unsafe extern "C" fn(info: *mut OrtTensorTypeAndShapeInfo, type_: ONNXTensorElementDataType) -> *mut OrtStatus>,
    pub SetDimensions: Option<unsafe extern "C" fn(info: *mut OrtTensorTypeAndShapeInfo, dim_values: *const i64, dim_count: usize) -> *mut OrtStatus>,
    pub GetTensorElementType: Option<unsafe extern "C" fn(info: *const OrtTensorTypeAndShapeInfo, out: *mut ONNXTensorElementDataType) -> *mut OrtStatus>,
    pub GetDimensionsCount: Option<unsafe extern "C" fn(info: *const OrtTensorTypeAndShapeInfo, out: *mut usize) -> *mut OrtStatus>,
    pub GetDimensions: Option<unsafe extern "C" fn(info: *const OrtTensorTypeAndShapeInfo, dim_values: *mut i64, dim_values_length: usize) -> *mut OrtStatus>,
    pub GetSymbolicDimensions: Option<unsafe extern "C" fn(info: *const OrtTensorTypeAndShapeInfo, dim_params: *mut *const c_char, dim_params_length: usize) -> *mut OrtStatus>,
    pub other_64: [*mut c_void; 1],
    pub GetTensorTypeAndShape: Option<unsafe extern "C" fn(value: *const OrtValue, out: *mut *mut OrtTensorTypeAndShapeInfo) -> *mut OrtStatus>,
    pub other_66: [*mut c_void; 6],
    pub MemoryInfoGetId: Option<unsafe extern "C" fn(ptr: *const OrtMemoryInfo, out: *mut c_int) -> *mut OrtStatus>,
    pub other_73: [*mut c_void; 12],
    pub KernelInfoGetAttribute_float: Option<unsafe extern "C" fn(info: *const OrtKernelInfo, name: *const c_char, out: *mut f32) -> *mut OrtStatus>,
    pub KernelInfoGetAttribute_int64: Option<unsafe extern "C" fn(info: *const OrtKernelInfo, name: *const c_char, out: *mut i64) -> *mut OrtStatus>,
    pub KernelInfoGetAttribute_string: Option<unsafe extern "C" fn(info: *const OrtKernelInfo, name: *const c_char, out: *mut c_char, size: *mut usize) -> *mut OrtStatus>,
    pub other_88: [*mut c_void; 2],
    pub KernelContext_GetInput: Option<unsafe extern "C" fn(context: *const OrtKernelContext, index: usize, out: *mut *const OrtValue) -> *mut OrtStatus>,
    pub KernelContext_GetOutput: Option<unsafe extern "C" fn(context: *mut OrtKernelContext, index: usize, dim_values: *const i64, dim_count: usize, out: *mut *mut OrtValue) -> *mut OrtStatus>,
    pub other_92: [*mut c_void; 1],
    pub ReleaseStatus: Option<unsafe extern "C" fn(input: *mut OrtStatus)>,
    pub other_94: [*mut c_void; 5],
    pub ReleaseTensorTypeAndShapeInfo: Option<unsafe extern "C" fn(input: *mut OrtTensorTypeAndShapeInfo)>,
    pub other_100: [*mut c_void; 30],
    pub AddSessionConfigEntry: Option<unsafe extern "C" fn(options: *mut OrtSessionOptions, config_key: *const c_char, config_value: *const c_char) -> *mut OrtStatus>,
    pub other_131: [*mut c_void; 1],
    pub ReleaseAllocator: Option<unsafe extern "C" fn(input: *mut OrtAllocator)>,
    pub other_133: [*mut c_void; 29],
    pub KernelInfoGetAttributeArray_float: Option<unsafe extern "C" fn(info: *const OrtKernelInfo, name: *const c_char, out: *mut f32, size: *mut usize) -> *mut OrtStatus>,
    pub KernelInfoGetAttributeArray_int64: Option<unsafe extern "C" fn(info: *const OrtKernelInfo, name: *const c_char, out: *mut i64, size: *mut usize) -> *mut OrtStatus>,
    pub other_164: [*mut c_void; 29],
    pub KernelContext_GetGPUComputeStream: Option<unsafe extern "C" fn(context: *const OrtKernelContext, out: *mut *mut c_void) -> *mut OrtStatus>,
    pub GetTensorMemoryInfo: Option<unsafe extern "C" fn(value: *const OrtValue, mem_info: *mut *const OrtMemoryInfo) -> *mut OrtStatus>,
    pub other_195: [*mut c_void; 30],
    pub MemoryInfoGetDeviceType: Option<unsafe extern "C" fn(ptr: *const OrtMemoryInfo, out: *mut OrtMemoryInfoDeviceType)>,
    pub other_226: [*mut c_void; 4],
    pub KernelInfo_GetInputCount: Option<unsafe extern "C" fn(info: *const OrtKernelInfo, out: *mut usize) -> *mut OrtStatus>,
    pub KernelInfo_GetOutputCount: Option<unsafe extern "C" fn(info: *const OrtKernelInfo, out: *mut usize) -> *mut OrtStatus>,
    pub other_232: [*mut c_void; 5],
    pub HasSessionConfigEntry: Option<unsafe extern "C" fn(options: *const OrtSessionOptions, config_key: *const c_char, out: *mut c_int) -> *mut OrtStatus>,
    pub GetSessionConfigEntry: Option<unsafe extern "C" fn(options: *const OrtSessionOptions, config_key: *const c_char, config_value: *mut c_char, size: *mut usize) -> *mut OrtStatus>,
    pub other_239: [*mut c_void; 7],
    pub KernelContext_GetLogger: Option<unsafe extern "C" fn(context: *const OrtKernelContext, logger: *mut *const OrtLogger) -> *mut OrtStatus>,
    pub Logger_LogMessage: Option<unsafe extern "C" fn(logger: *const OrtLogger, log_severity_level: OrtLoggingLevel, message: *const c_char, file_path: *const c_char, line_number: c_int, func_name: *const c_char) -> *mut OrtStatus>,
    pub other_248: [*mut c_void; 1],
    pub KernelInfoGetConstantInput_tensor: Option<unsafe extern "C" fn(info: *const OrtKernelInfo, index: usize, is_constant: *mut c_int, out: *mut *const OrtValue) -> *mut OrtStatus>,
    pub other_250: [*mut c_void; 17],
    pub ShapeInferContext_GetInputCount: Option<unsafe extern "C" fn(context: *const OrtShapeInferContext, out: *mut usize) -> *mut OrtStatus>,
    pub ShapeInferContext_GetInputTypeShape: Option<unsafe extern "C" fn(context: *const OrtShapeInferContext, index: usize, info: *mut *mut OrtTensorTypeAndShapeInfo) -> *mut OrtStatus>,
    pub ShapeInferContext_GetAttribute: Option<unsafe extern "C" fn(context: *const OrtShapeInferContext, attr_name: *const c_char, attr: *mut *const OrtOpAttr) -> *mut OrtStatus>,
    pub ShapeInferContext_SetOutputTypeShape: Option<unsafe extern "C" fn(context: *const OrtShapeInferContext, index: usize, info: *const OrtTensorTypeAndShapeInfo) -> *mut OrtStatus>,
    pub SetSymbolicDimensions: Option<unsafe extern "C" fn(info: *mut OrtTensorTypeAndShapeInfo, dim_params: *mut *const c_char, dim_params_length: usize) -> *mut OrtStatus>,
    pub ReadOpAttr: Option<unsafe extern "C" fn(op_attr: *const OrtOpAttr, type_: OrtOpAttrType, data: *mut c_void, len: usize, out: *mut usize) -> *mut OrtStatus>,
    pub other_273: [*mut c_void; 1],
    pub KernelContext_ParallelFor: Option<unsafe extern "C" fn(context: *const OrtKernelContext, fn_: Option<unsafe extern "C" fn(*mut c_void, usize)>, total: usize, num_batch: usize, usr_data: *mut c_void) -> *mut OrtStatus>,
    pub other_275: [*mut c_void; 2],
    pub KernelContext_GetScratchBuffer: Option<unsafe extern "C" fn(context: *const OrtKernelContext, mem_info: *const OrtMemoryInfo, count_or_bytes: usize, out: *mut *mut c_void) -> *mut OrtStatus>,
    pub KernelInfoGetAllocator: Option<unsafe extern "C" fn(info: *const OrtKernelInfo, mem_type: OrtMemType, out: *mut *mut OrtAllocator) -> *mut OrtStatus>,
}

#[repr(C)]
pub struct OrtCustomOp {
    pub version: u32,
    pub CreateKernel: Option<unsafe extern "C" fn(op: *const OrtCustomOp, api: *const OrtApi, info: *const OrtKernelInfo) -> *mut c_void>,
    pub GetName: Option<unsafe extern "C" fn(op: *const OrtCustomOp) -> *const c_char>,
    pub GetExecutionProviderType: Option<unsafe extern "C" fn(op: *const OrtCustomOp) -> *const c_char>,
    pub GetInputType: Option<unsafe extern "C" fn(op: *const OrtCustomOp, index: usize) -> ONNXTensorElementDataType>,
    pub GetInputTypeCount: Option<unsafe extern "C" fn(op: *const OrtCustomOp) -> usize>,
    pub GetOutputType: Option<unsafe extern "C" fn(op: *const OrtCustomOp, index: usize) -> ONNXTensorElementDataType>,
    pub GetOutputTypeCount: Option<unsafe extern "C" fn(op: *const OrtCustomOp) -> usize>,
    pub KernelCompute: Option<unsafe extern "C" fn(op_kernel: *mut c_void, context: *mut OrtKernelContext)>,
    pub KernelDestroy: Option<unsafe extern "C" fn(op_kernel: *mut c_void)>,
    pub GetInputCharacteristic: Option<unsafe extern "C" fn(op: *const OrtCustomOp, index: usize) -> OrtCustomOpInputOutputCharacteristic>,
    pub GetOutputCharacteristic: Option<unsafe extern "C" fn(op: *const OrtCustomOp, index: usize) -> OrtCustomOpInputOutputCharacteristic>,
    pub GetInputMemoryType: Option<unsafe extern "C" fn(op: *const OrtCustomOp, index: usize) -> OrtMemType>,
    pub GetVariadicInputMinArity: Option<unsafe extern "C" fn(op: *const OrtCustomOp) -> c_int>,
    pub GetVariadicInputHomogeneity: Option<unsafe extern "C" fn(op: *const OrtCustomOp) -> c_int>,
    pub GetVariadicOutputMinArity: Option<unsafe extern "C" fn(op: *const OrtCustomOp) -> c_int>,
    pub GetVariadicOutputHomogeneity: Option<unsafe extern "C" fn(op: *const OrtCustomOp) -> c_int>,
    pub CreateKernelV2: Option<unsafe extern "C" fn(op: *const OrtCustomOp, api: *const OrtApi, info: *const OrtKernelInfo, kernel: *mut *mut c_void) -> *mut OrtStatus>,
    pub KernelComputeV2: Option<unsafe extern "C" fn(op_kernel: *mut c_void, context: *mut OrtKernelContext) -> *mut OrtStatus>,
    pub InferOutputShapeFn: Option<unsafe extern "C" fn(op: *const OrtCustomOp, *mut OrtShapeInferContext) -> *mut OrtStatus>,
    pub GetStartVersion: Option<unsafe extern "C" fn(op: *const OrtCustomOp) -> c_int>,
    pub GetEndVersion: Option<unsafe extern "C" fn(op: *const OrtCustomOp) -> c_int>,
    pub GetMayInplace: Option<unsafe extern "C" fn(input_index: *mut *mut c_int, output_index: *mut *mut c_int) -> usize>,
    pub ReleaseMayInplace: Option<unsafe extern "C" fn(input_index: *mut c_int, output_index: *mut c_int)>,
    pub GetAliasMap: Option<unsafe extern "C" fn(input_index: *mut *mut c_int, output_index: *mut *mut c_int) -> usize>,
    pub ReleaseAliasMap: Option<unsafe extern "C" fn(input_index: *mut c_int, output_index: *mut c_int)>,
}
