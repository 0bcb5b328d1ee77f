// Code generated from abi/graft_plugin.h and abi/graft_cache.h by abi/gen. DO NOT EDIT.

//! The C ABI of graft's plugins. What each part means is said in the headers.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals, dead_code)]

use std::ffi::{c_char, c_void};

pub const GRAFT_ABI_MAJOR: i64 = 1;
pub const GRAFT_ABI_MINOR: i64 = 0;
pub const GRAFT_OK: i64 = 0;
pub const GRAFT_ERROR_INVALID_ARGUMENT: i64 = 1;
pub const GRAFT_ERROR_UNSUPPORTED: i64 = 2;
pub const GRAFT_ERROR_OUT_OF_MEMORY: i64 = 3;
pub const GRAFT_ERROR_DEVICE: i64 = 4;
pub const GRAFT_ERROR_INTERNAL: i64 = 5;
pub const GRAFT_REFUSED: i64 = 6;
pub const GRAFT_DEVICE_CPU: i64 = 1;
pub const GRAFT_DEVICE_CUDA: i64 = 2;
pub const GRAFT_TYPE_INT: i64 = 0;
pub const GRAFT_TYPE_UINT: i64 = 1;
pub const GRAFT_TYPE_FLOAT: i64 = 2;
pub const GRAFT_TYPE_BFLOAT: i64 = 4;
pub const GRAFT_TYPE_BOOL: i64 = 6;
pub const GRAFT_MAX_RANK: i64 = 16;
pub const GRAFT_UNKNOWN_DIM: i64 = -1;
pub const GRAFT_PARAMETER_OPTIONAL: i64 = 1;
pub const GRAFT_PARAMETER_VARIADIC: i64 = 2;
pub const GRAFT_PARAMETER_STRIDED: i64 = 4;
pub const GRAFT_PARAMETER_HOST_MEMORY: i64 = 8;
pub const GRAFT_ATTRIBUTE_INT: i64 = 1;
pub const GRAFT_ATTRIBUTE_FLOAT: i64 = 2;
pub const GRAFT_ATTRIBUTE_STRING: i64 = 3;
pub const GRAFT_ATTRIBUTE_INTS: i64 = 4;
pub const GRAFT_ATTRIBUTE_FLOATS: i64 = 5;
pub const GRAFT_ATTRIBUTE_REQUIRED: i64 = 1;
pub const GRAFT_LOG_DEBUG: i64 = 0;
pub const GRAFT_LOG_INFO: i64 = 1;
pub const GRAFT_LOG_WARNING: i64 = 2;
pub const GRAFT_LOG_ERROR: i64 = 3;
pub const GRAFT_NOTE_SECTION: &str = ".note.graft";
pub const GRAFT_NOTE_OWNER: &str = "graft";
pub const GRAFT_NOTE_TYPE: i64 = 1;
pub const GRAFT_ONNX_DOMAIN: &str = "graft";
pub const GRAFT_EXTENSION_ORT_OPS: &str = "graft.ort_ops";
pub const GRAFT_ORT_DOMAIN_KEY: &str = "graft.domain.v1";
pub const GRAFT_PLUGIN_SYMBOL: &str = "graft_plugin_v1";
pub const GRAFT_CACHE_BLOCK_SIZE: i64 = 16;
pub const GRAFT_CACHE_LINE_FLOATS: i64 = 16;
pub const GRAFT_CACHE_SCALE_GROUP: i64 = 64;
pub const GRAFT_CACHE_NO_SLOT: i64 = -1;
pub const GRAFT_SEQUENCE_FIRST_TOKEN: i64 = 0;
pub const GRAFT_SEQUENCE_TOKENS: i64 = 1;
pub const GRAFT_SEQUENCE_SHARED_OFFSET: i64 = 2;
pub const GRAFT_SEQUENCE_SHARED: i64 = 3;
pub const GRAFT_SEQUENCE_PRIVATE_OFFSET: i64 = 4;
pub const GRAFT_SEQUENCE_PRIVATE: i64 = 5;
pub const GRAFT_SEQUENCE_CAUSAL: i64 = 6;
pub const GRAFT_SEQUENCE_RESERVED: i64 = 7;
pub const GRAFT_SEQUENCE_COLUMNS: i64 = 8;
pub const GRAFT_PANEL_COLUMNS: i64 = 16;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_extension {
    pub size: u64,
    pub next: *const graft_extension,
    pub name: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_device {
    pub type_: i32,
    pub id: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_data_type {
    pub code: u8,
    pub bits: u8,
    pub lanes: u16,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_tensor {
    pub data: *mut c_void,
    pub device: graft_device,
    pub ndim: i32,
    pub dtype: graft_data_type,
    pub shape: *mut i64,
    pub strides: *mut i64,
    pub byte_offset: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_message {
    pub size: u64,
    pub next: *const graft_extension,
    pub text: *mut c_char,
    pub capacity: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_parameter {
    pub size: u64,
    pub next: *const graft_extension,
    pub name: *const c_char,
    pub types: *const graft_data_type,
    pub num_types: u32,
    pub type_variable: i32,
    pub flags: u32,
    pub min_count: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_attribute {
    pub size: u64,
    pub next: *const graft_extension,
    pub name: *const c_char,
    pub kind: i32,
    pub flags: u32,
    pub int_value: i64,
    pub float_value: f64,
    pub data: *const c_void,
    pub count: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_operator {
    pub size: u64,
    pub next: *const graft_extension,
    pub name: *const c_char,
    pub summary: *const c_char,
    pub inputs: *const *const graft_parameter,
    pub outputs: *const *const graft_parameter,
    pub attributes: *const *const graft_attribute,
    pub num_inputs: u32,
    pub num_outputs: u32,
    pub num_attributes: u32,
    pub since_version: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_plugin_info {
    pub size: u64,
    pub next: *const graft_extension,
    pub name: *const c_char,
    pub version: *const c_char,
    pub summary: *const c_char,
    pub device_type: i32,
    pub num_operators: u32,
    pub operators: *const *const graft_operator,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_probe_result {
    pub size: u64,
    pub next: *const graft_extension,
    pub score: i32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_named_tensor {
    pub size: u64,
    pub next: *const graft_extension,
    pub name: *const c_char,
    pub tensor: *const graft_tensor,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_fold_request {
    pub size: u64,
    pub next: *const graft_extension,
    pub operator_name: *const c_char,
    pub constants: *const *const graft_named_tensor,
    pub attributes: *const *const graft_attribute,
    pub num_constants: u32,
    pub num_attributes: u32,
    pub emit: Option<unsafe extern "C" fn(emit_context: *mut c_void, name: *const c_char, tensor: *const graft_tensor) -> i32>,
    pub emit_context: *mut c_void,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_create_request {
    pub size: u64,
    pub next: *const graft_extension,
    pub operator_index: u32,
    pub num_attributes: u32,
    pub attributes: *const *const graft_attribute,
    pub constants: *const *const graft_tensor,
    pub num_constants: u32,
    pub device: graft_device,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_run_context {
    pub size: u64,
    pub next: *const graft_extension,
    pub stream: *mut c_void,
    pub workspace: *mut c_void,
    pub workspace_size: u64,
    pub parallel_for: Option<unsafe extern "C" fn(parallel_context: *mut c_void, count: u64, task: Option<unsafe extern "C" fn(*mut c_void, u64)>, task_context: *mut c_void) -> i32>,
    pub parallel_context: *mut c_void,
    pub log: Option<unsafe extern "C" fn(log_context: *mut c_void, level: i32, text: *const c_char)>,
    pub log_context: *mut c_void,
    pub concurrency: i32,
    pub reserved: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_plugin {
    pub size: u64,
    pub next: *const graft_extension,
    pub abi_major: u32,
    pub abi_minor: u32,
    pub describe: Option<unsafe extern "C" fn() -> *const graft_plugin_info>,
    pub probe: Option<unsafe extern "C" fn(device: *const graft_device, result: *mut graft_probe_result, message: *mut graft_message) -> i32>,
    pub fold: Option<unsafe extern "C" fn(request: *const graft_fold_request, message: *mut graft_message) -> i32>,
    pub create: Option<unsafe extern "C" fn(request: *const graft_create_request, kernel: *mut *mut c_void, message: *mut graft_message) -> i32>,
    pub infer_shapes: Option<unsafe extern "C" fn(kernel: *const c_void, inputs: *const *const graft_tensor, num_inputs: u64, outputs: *const *mut graft_tensor, num_outputs: u64, message: *mut graft_message) -> i32>,
    pub workspace_size: Option<unsafe extern "C" fn(kernel: *const c_void, inputs: *const *const graft_tensor, num_inputs: u64, outputs: *const *const graft_tensor, num_outputs: u64, concurrency: i32, bytes: *mut u64, message: *mut graft_message) -> i32>,
    pub run: Option<unsafe extern "C" fn(kernel: *const c_void, context: *const graft_run_context, inputs: *const *const graft_tensor, num_inputs: u64, outputs: *const *mut graft_tensor, num_outputs: u64, message: *mut graft_message) -> i32>,
    pub destroy: Option<unsafe extern "C" fn(kernel: *mut c_void)>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_ort_ops {
    pub size: u64,
    pub next: *const graft_extension,
    pub name: *const c_char,
    pub get: Option<unsafe extern "C" fn(ort_api_base: *const c_void, ops: *mut *const *const c_void, num_ops: *mut u64, message: *mut graft_message) -> i32>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct graft_ort_registrar {
    pub size: u64,
    pub next: *const graft_extension,
    pub join: Option<unsafe extern "C" fn(registrar: *const graft_ort_registrar, plugin: *const c_char, ops: *const *const c_void, num_ops: u64, message: *mut graft_message) -> i32>,
    pub domain: *mut c_void,
}

pub const fn graft_cache_blocks(positions: i64) -> i64 {
    ( positions + GRAFT_CACHE_BLOCK_SIZE - 1 ) / GRAFT_CACHE_BLOCK_SIZE
}

pub const fn graft_cache_kv_area(kv_heads: i64, head_size: i64, value_size: i64) -> i64 {
    kv_heads * GRAFT_CACHE_BLOCK_SIZE * ( head_size + value_size )
}

pub const fn graft_cache_key_offset(slot: i64, head: i64, block_floats: i64, offset: i64, head_size: i64) -> i64 {
    slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset + ( head * GRAFT_CACHE_BLOCK_SIZE + slot % GRAFT_CACHE_BLOCK_SIZE ) * head_size
}

pub const fn graft_cache_value_offset(slot: i64, head: i64, block_floats: i64, offset: i64, kv_heads: i64, head_size: i64, value_size: i64) -> i64 {
    slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset + kv_heads * GRAFT_CACHE_BLOCK_SIZE * head_size + ( head * GRAFT_CACHE_BLOCK_SIZE + slot % GRAFT_CACHE_BLOCK_SIZE ) * value_size
}

pub const fn graft_cache_row_area(width: i64, element_bytes: i64) -> i64 {
    ( GRAFT_CACHE_BLOCK_SIZE * width * element_bytes / 4 + GRAFT_CACHE_LINE_FLOATS - 1 ) / GRAFT_CACHE_LINE_FLOATS * GRAFT_CACHE_LINE_FLOATS
}

pub const fn graft_cache_row_offset(slot: i64, block_floats: i64, offset: i64, width: i64, element_bytes: i64) -> i64 {
    ( slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset ) * 4 + slot % GRAFT_CACHE_BLOCK_SIZE * width * element_bytes
}

pub const fn graft_cache_int8_row(width: i64) -> i64 {
    ( width + GRAFT_CACHE_SCALE_GROUP - 1 ) / GRAFT_CACHE_SCALE_GROUP * 4 + ( width + 3 ) / 4 * 4
}

pub const fn graft_cache_scales(kv_heads: i64) -> i64 {
    2 * kv_heads * GRAFT_CACHE_BLOCK_SIZE
}

pub const fn graft_cache_scale_offset(slot: i64, head: i64, block_floats: i64, offset: i64) -> i64 {
    slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset + head * GRAFT_CACHE_BLOCK_SIZE + slot % GRAFT_CACHE_BLOCK_SIZE
}

pub const fn graft_cache_typed_kv_area(kv_heads: i64, head_size: i64, value_size: i64, element_bytes: i64, scales: i64) -> i64 {
    graft_cache_row_area ( kv_heads * ( head_size + value_size ) , element_bytes ) + scales
}

pub const fn graft_cache_typed_key_offset(slot: i64, head: i64, block_floats: i64, offset: i64, head_size: i64, element_bytes: i64, scales: i64) -> i64 {
    ( slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset + scales ) * 4 + ( head * GRAFT_CACHE_BLOCK_SIZE + slot % GRAFT_CACHE_BLOCK_SIZE ) * head_size * element_bytes
}

pub const fn graft_cache_typed_value_offset(slot: i64, head: i64, block_floats: i64, offset: i64, kv_heads: i64, head_size: i64, value_size: i64, element_bytes: i64, scales: i64) -> i64 {
    ( slot / GRAFT_CACHE_BLOCK_SIZE * block_floats + offset + scales ) * 4 + ( kv_heads * GRAFT_CACHE_BLOCK_SIZE * head_size + ( head * GRAFT_CACHE_BLOCK_SIZE + slot % GRAFT_CACHE_BLOCK_SIZE ) * value_size ) * element_bytes
}

pub const fn graft_panels(columns: i64) -> i64 {
    ( columns + GRAFT_PANEL_COLUMNS - 1 ) / GRAFT_PANEL_COLUMNS
}

pub const fn graft_panel_offset(column: i64, row: i64, depth: i64) -> i64 {
    ( column / GRAFT_PANEL_COLUMNS * depth + row ) * GRAFT_PANEL_COLUMNS + column % GRAFT_PANEL_COLUMNS
}

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(std::mem::size_of::<graft_extension>() == 24);
    assert!(std::mem::offset_of!(graft_extension, size) == 0);
    assert!(std::mem::offset_of!(graft_extension, next) == 8);
    assert!(std::mem::offset_of!(graft_extension, name) == 16);
    assert!(std::mem::size_of::<graft_device>() == 8);
    assert!(std::mem::offset_of!(graft_device, type_) == 0);
    assert!(std::mem::offset_of!(graft_device, id) == 4);
    assert!(std::mem::size_of::<graft_data_type>() == 4);
    assert!(std::mem::offset_of!(graft_data_type, code) == 0);
    assert!(std::mem::offset_of!(graft_data_type, bits) == 1);
    assert!(std::mem::offset_of!(graft_data_type, lanes) == 2);
    assert!(std::mem::size_of::<graft_tensor>() == 48);
    assert!(std::mem::offset_of!(graft_tensor, data) == 0);
    assert!(std::mem::offset_of!(graft_tensor, device) == 8);
    assert!(std::mem::offset_of!(graft_tensor, ndim) == 16);
    assert!(std::mem::offset_of!(graft_tensor, dtype) == 20);
    assert!(std::mem::offset_of!(graft_tensor, shape) == 24);
    assert!(std::mem::offset_of!(graft_tensor, strides) == 32);
    assert!(std::mem::offset_of!(graft_tensor, byte_offset) == 40);
    assert!(std::mem::size_of::<graft_message>() == 32);
    assert!(std::mem::offset_of!(graft_message, size) == 0);
    assert!(std::mem::offset_of!(graft_message, next) == 8);
    assert!(std::mem::offset_of!(graft_message, text) == 16);
    assert!(std::mem::offset_of!(graft_message, capacity) == 24);
    assert!(std::mem::size_of::<graft_parameter>() == 48);
    assert!(std::mem::offset_of!(graft_parameter, size) == 0);
    assert!(std::mem::offset_of!(graft_parameter, next) == 8);
    assert!(std::mem::offset_of!(graft_parameter, name) == 16);
    assert!(std::mem::offset_of!(graft_parameter, types) == 24);
    assert!(std::mem::offset_of!(graft_parameter, num_types) == 32);
    assert!(std::mem::offset_of!(graft_parameter, type_variable) == 36);
    assert!(std::mem::offset_of!(graft_parameter, flags) == 40);
    assert!(std::mem::offset_of!(graft_parameter, min_count) == 44);
    assert!(std::mem::size_of::<graft_attribute>() == 64);
    assert!(std::mem::offset_of!(graft_attribute, size) == 0);
    assert!(std::mem::offset_of!(graft_attribute, next) == 8);
    assert!(std::mem::offset_of!(graft_attribute, name) == 16);
    assert!(std::mem::offset_of!(graft_attribute, kind) == 24);
    assert!(std::mem::offset_of!(graft_attribute, flags) == 28);
    assert!(std::mem::offset_of!(graft_attribute, int_value) == 32);
    assert!(std::mem::offset_of!(graft_attribute, float_value) == 40);
    assert!(std::mem::offset_of!(graft_attribute, data) == 48);
    assert!(std::mem::offset_of!(graft_attribute, count) == 56);
    assert!(std::mem::size_of::<graft_operator>() == 72);
    assert!(std::mem::offset_of!(graft_operator, size) == 0);
    assert!(std::mem::offset_of!(graft_operator, next) == 8);
    assert!(std::mem::offset_of!(graft_operator, name) == 16);
    assert!(std::mem::offset_of!(graft_operator, summary) == 24);
    assert!(std::mem::offset_of!(graft_operator, inputs) == 32);
    assert!(std::mem::offset_of!(graft_operator, outputs) == 40);
    assert!(std::mem::offset_of!(graft_operator, attributes) == 48);
    assert!(std::mem::offset_of!(graft_operator, num_inputs) == 56);
    assert!(std::mem::offset_of!(graft_operator, num_outputs) == 60);
    assert!(std::mem::offset_of!(graft_operator, num_attributes) == 64);
    assert!(std::mem::offset_of!(graft_operator, since_version) == 68);
    assert!(std::mem::size_of::<graft_plugin_info>() == 56);
    assert!(std::mem::offset_of!(graft_plugin_info, size) == 0);
    assert!(std::mem::offset_of!(graft_plugin_info, next) == 8);
    assert!(std::mem::offset_of!(graft_plugin_info, name) == 16);
    assert!(std::mem::offset_of!(graft_plugin_info, version) == 24);
    assert!(std::mem::offset_of!(graft_plugin_info, summary) == 32);
    assert!(std::mem::offset_of!(graft_plugin_info, device_type) == 40);
    assert!(std::mem::offset_of!(graft_plugin_info, num_operators) == 44);
    assert!(std::mem::offset_of!(graft_plugin_info, operators) == 48);
    assert!(std::mem::size_of::<graft_probe_result>() == 24);
    assert!(std::mem::offset_of!(graft_probe_result, size) == 0);
    assert!(std::mem::offset_of!(graft_probe_result, next) == 8);
    assert!(std::mem::offset_of!(graft_probe_result, score) == 16);
    assert!(std::mem::offset_of!(graft_probe_result, reserved) == 20);
    assert!(std::mem::size_of::<graft_named_tensor>() == 32);
    assert!(std::mem::offset_of!(graft_named_tensor, size) == 0);
    assert!(std::mem::offset_of!(graft_named_tensor, next) == 8);
    assert!(std::mem::offset_of!(graft_named_tensor, name) == 16);
    assert!(std::mem::offset_of!(graft_named_tensor, tensor) == 24);
    assert!(std::mem::size_of::<graft_fold_request>() == 64);
    assert!(std::mem::offset_of!(graft_fold_request, size) == 0);
    assert!(std::mem::offset_of!(graft_fold_request, next) == 8);
    assert!(std::mem::offset_of!(graft_fold_request, operator_name) == 16);
    assert!(std::mem::offset_of!(graft_fold_request, constants) == 24);
    assert!(std::mem::offset_of!(graft_fold_request, attributes) == 32);
    assert!(std::mem::offset_of!(graft_fold_request, num_constants) == 40);
    assert!(std::mem::offset_of!(graft_fold_request, num_attributes) == 44);
    assert!(std::mem::offset_of!(graft_fold_request, emit) == 48);
    assert!(std::mem::offset_of!(graft_fold_request, emit_context) == 56);
    assert!(std::mem::size_of::<graft_create_request>() == 56);
    assert!(std::mem::offset_of!(graft_create_request, size) == 0);
    assert!(std::mem::offset_of!(graft_create_request, next) == 8);
    assert!(std::mem::offset_of!(graft_create_request, operator_index) == 16);
    assert!(std::mem::offset_of!(graft_create_request, num_attributes) == 20);
    assert!(std::mem::offset_of!(graft_create_request, attributes) == 24);
    assert!(std::mem::offset_of!(graft_create_request, constants) == 32);
    assert!(std::mem::offset_of!(graft_create_request, num_constants) == 40);
    assert!(std::mem::offset_of!(graft_create_request, device) == 44);
    assert!(std::mem::offset_of!(graft_create_request, reserved) == 52);
    assert!(std::mem::size_of::<graft_run_context>() == 80);
    assert!(std::mem::offset_of!(graft_run_context, size) == 0);
    assert!(std::mem::offset_of!(graft_run_context, next) == 8);
    assert!(std::mem::offset_of!(graft_run_context, stream) == 16);
    assert!(std::mem::offset_of!(graft_run_context, workspace) == 24);
    assert!(std::mem::offset_of!(graft_run_context, workspace_size) == 32);
    assert!(std::mem::offset_of!(graft_run_context, parallel_for) == 40);
    assert!(std::mem::offset_of!(graft_run_context, parallel_context) == 48);
    assert!(std::mem::offset_of!(graft_run_context, log) == 56);
    assert!(std::mem::offset_of!(graft_run_context, log_context) == 64);
    assert!(std::mem::offset_of!(graft_run_context, concurrency) == 72);
    assert!(std::mem::offset_of!(graft_run_context, reserved) == 76);
    assert!(std::mem::size_of::<graft_plugin>() == 88);
    assert!(std::mem::offset_of!(graft_plugin, size) == 0);
    assert!(std::mem::offset_of!(graft_plugin, next) == 8);
    assert!(std::mem::offset_of!(graft_plugin, abi_major) == 16);
    assert!(std::mem::offset_of!(graft_plugin, abi_minor) == 20);
    assert!(std::mem::offset_of!(graft_plugin, describe) == 24);
    assert!(std::mem::offset_of!(graft_plugin, probe) == 32);
    assert!(std::mem::offset_of!(graft_plugin, fold) == 40);
    assert!(std::mem::offset_of!(graft_plugin, create) == 48);
    assert!(std::mem::offset_of!(graft_plugin, infer_shapes) == 56);
    assert!(std::mem::offset_of!(graft_plugin, workspace_size) == 64);
    assert!(std::mem::offset_of!(graft_plugin, run) == 72);
    assert!(std::mem::offset_of!(graft_plugin, destroy) == 80);
    assert!(std::mem::size_of::<graft_ort_ops>() == 32);
    assert!(std::mem::offset_of!(graft_ort_ops, size) == 0);
    assert!(std::mem::offset_of!(graft_ort_ops, next) == 8);
    assert!(std::mem::offset_of!(graft_ort_ops, name) == 16);
    assert!(std::mem::offset_of!(graft_ort_ops, get) == 24);
    assert!(std::mem::size_of::<graft_ort_registrar>() == 32);
    assert!(std::mem::offset_of!(graft_ort_registrar, size) == 0);
    assert!(std::mem::offset_of!(graft_ort_registrar, next) == 8);
    assert!(std::mem::offset_of!(graft_ort_registrar, join) == 16);
    assert!(std::mem::offset_of!(graft_ort_registrar, domain) == 24);
};
