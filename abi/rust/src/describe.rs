//! What an operator takes and gives.

use crate::abi::*;
use std::ffi::{c_char, c_void, CString};
use std::ptr::null;

/// The type of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    F32,
    F64,
    F16,
    BF16,
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
}

pub(crate) const TYPES: [(Type, i64, u8, i32); 13] = [
    (Type::F32, GRAFT_TYPE_FLOAT, 32, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT),
    (Type::F64, GRAFT_TYPE_FLOAT, 64, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE),
    (Type::F16, GRAFT_TYPE_FLOAT, 16, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16),
    (Type::BF16, GRAFT_TYPE_BFLOAT, 16, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_BFLOAT16),
    (Type::Bool, GRAFT_TYPE_BOOL, 8, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_BOOL),
    (Type::I8, GRAFT_TYPE_INT, 8, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8),
    (Type::I16, GRAFT_TYPE_INT, 16, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT16),
    (Type::I32, GRAFT_TYPE_INT, 32, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32),
    (Type::I64, GRAFT_TYPE_INT, 64, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_INT64),
    (Type::U8, GRAFT_TYPE_UINT, 8, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8),
    (Type::U16, GRAFT_TYPE_UINT, 16, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT16),
    (Type::U32, GRAFT_TYPE_UINT, 32, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT32),
    (Type::U64, GRAFT_TYPE_UINT, 64, crate::ort::ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT64),
];

impl Type {
    pub(crate) fn of(c: graft_data_type) -> Option<Type> {
        TYPES.iter().find(|t| t.1 == i64::from(c.code) && t.2 == c.bits && c.lanes == 1).map(|t| t.0)
    }
    pub(crate) fn c(self) -> graft_data_type {
        let t = TYPES.iter().find(|t| t.0 == self).expect("every type is listed");
        graft_data_type { code: t.1 as u8, bits: t.2, lanes: 1 }
    }
    pub(crate) fn onnx(self) -> i32 {
        TYPES.iter().find(|t| t.0 == self).expect("every type is listed").3
    }
    pub(crate) fn of_onnx(onnx: i32) -> Option<Type> {
        TYPES.iter().find(|t| t.3 == onnx).map(|t| t.0)
    }
}

/// An operator's signature, built by chained calls. It is given once and lives as long as the library.
pub struct Description {
    name: String,
    summary: String,
    inputs: Vec<*const graft_parameter>,
    outputs: Vec<*const graft_parameter>,
    attributes: Vec<*const graft_attribute>,
}

fn text(s: &str) -> *const c_char {
    CString::new(s).unwrap_or_default().into_raw()
}

fn leak<T>(value: T) -> *const T {
    Box::leak(Box::new(value))
}

impl Description {
    pub fn new(name: &str, summary: &str) -> Description {
        Description { name: name.into(), summary: summary.into(), inputs: vec![], outputs: vec![], attributes: vec![] }
    }

    fn parameter(name: &str, types: &[Type], variable: i32, flags: i64, least: u32) -> *const graft_parameter {
        let types: Vec<graft_data_type> = types.iter().map(|t| t.c()).collect();
        let types: &'static [graft_data_type] = Vec::leak(types);
        leak(graft_parameter {
            size: std::mem::size_of::<graft_parameter>() as u64,
            next: null(),
            name: text(name),
            types: types.as_ptr(),
            num_types: types.len() as u32,
            type_variable: variable,
            flags: flags as u32,
            min_count: least,
        })
    }

    /// An input that holds one of these types.
    pub fn input(mut self, name: &str, types: &[Type]) -> Self {
        self.inputs.push(Self::parameter(name, types, -1, 0, 0));
        self
    }
    /// An input whose elements need not lie side by side.
    pub fn strided_input(mut self, name: &str, types: &[Type]) -> Self {
        self.inputs.push(Self::parameter(name, types, -1, GRAFT_PARAMETER_STRIDED, 0));
        self
    }
    pub fn optional_input(mut self, name: &str, types: &[Type]) -> Self {
        self.inputs.push(Self::parameter(name, types, -1, GRAFT_PARAMETER_OPTIONAL, 0));
        self
    }
    /// Inputs and outputs of one variable (0 to 7) hold one type, and list the same ones.
    pub fn input_of(mut self, variable: i32, name: &str, types: &[Type]) -> Self {
        self.inputs.push(Self::parameter(name, types, variable, 0, 0));
        self
    }
    /// The last input: `least` or more tensors.
    pub fn variadic_input(mut self, name: &str, types: &[Type], least: u32) -> Self {
        self.inputs.push(Self::parameter(name, types, -1, GRAFT_PARAMETER_VARIADIC, least));
        self
    }
    pub fn output(mut self, name: &str, types: &[Type]) -> Self {
        self.outputs.push(Self::parameter(name, types, -1, 0, 0));
        self
    }
    pub fn optional_output(mut self, name: &str, types: &[Type]) -> Self {
        self.outputs.push(Self::parameter(name, types, -1, GRAFT_PARAMETER_OPTIONAL, 0));
        self
    }
    pub fn output_of(mut self, variable: i32, name: &str, types: &[Type]) -> Self {
        self.outputs.push(Self::parameter(name, types, variable, 0, 0));
        self
    }

    fn attribute(&mut self, name: &str, kind: i64, int: i64, float: f64, data: *const c_void, count: usize) {
        self.attributes.push(leak(graft_attribute {
            size: std::mem::size_of::<graft_attribute>() as u64,
            next: null(),
            name: text(name),
            kind: kind as i32,
            flags: 0,
            int_value: int,
            float_value: float,
            data,
            count: count as u64,
        }));
    }
    pub fn int(mut self, name: &str, default: i64) -> Self {
        self.attribute(name, GRAFT_ATTRIBUTE_INT, default, 0.0, null(), 0);
        self
    }
    pub fn float(mut self, name: &str, default: f64) -> Self {
        self.attribute(name, GRAFT_ATTRIBUTE_FLOAT, 0, default, null(), 0);
        self
    }
    pub fn string(mut self, name: &str, default: &str) -> Self {
        self.attribute(name, GRAFT_ATTRIBUTE_STRING, 0, 0.0, text(default).cast(), default.len());
        self
    }
    pub fn ints(mut self, name: &str, default: &[i64]) -> Self {
        let data: &'static [i64] = Vec::leak(default.to_vec());
        self.attribute(name, GRAFT_ATTRIBUTE_INTS, 0, 0.0, data.as_ptr().cast(), data.len());
        self
    }

    pub(crate) fn freeze(self) -> *const graft_operator {
        let inputs: &'static [_] = Vec::leak(self.inputs);
        let outputs: &'static [_] = Vec::leak(self.outputs);
        let attributes: &'static [_] = Vec::leak(self.attributes);
        leak(graft_operator {
            size: std::mem::size_of::<graft_operator>() as u64,
            next: null(),
            name: text(&self.name),
            summary: text(&self.summary),
            inputs: inputs.as_ptr(),
            outputs: outputs.as_ptr(),
            attributes: attributes.as_ptr(),
            num_inputs: inputs.len() as u32,
            num_outputs: outputs.len() as u32,
            num_attributes: attributes.len() as u32,
            since_version: 1,
        })
    }
}
