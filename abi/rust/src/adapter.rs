//! The operators as ONNX Runtime custom operators, and their registration without a host.

use crate::abi::*;
use crate::kernel::{guard, library, make, Made};
use crate::ort::*;
use crate::{Error, Result, Type};
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Mutex;

/// The interface that every runtime of interest has: 1.18 on.
const VERSION: u32 = 18;

/// Calls a function of the runtime's table.
macro_rules! ort {
    ($api:expr, $name:ident $(, $argument:expr)*) => {
        ((*$api).$name.expect("the runtime has every function of this version"))($($argument),*)
    };
}

/// What a failed call of the runtime says.
unsafe fn ok(api: *const OrtApi, status: *mut OrtStatus) -> Result<()> {
    if status.is_null() {
        return Ok(());
    }
    let text = CStr::from_ptr(ort!(api, GetErrorMessage, status)).to_string_lossy().into_owned();
    ort!(api, ReleaseStatus, status);
    Err(Error::internal(text))
}

/// For calls whose failure is an answer.
unsafe fn succeeds(api: *const OrtApi, status: *mut OrtStatus) -> bool {
    if !status.is_null() {
        ort!(api, ReleaseStatus, status);
    }
    status.is_null()
}

/// Runs what may fail or panic, and makes a status of that.
unsafe fn status(api: *const OrtApi, place: &str, body: impl FnOnce() -> Result<()>) -> *mut OrtStatus {
    let mut text = [0 as c_char; 1024];
    let mut message = graft_message { size: std::mem::size_of::<graft_message>() as u64, next: null(), text: text.as_mut_ptr(), capacity: text.len() as u64 };
    let code = i64::from(guard(&mut message, body));
    if code == GRAFT_OK {
        return null_mut();
    }
    let said = CString::new(format!("graft {place}: {}", CStr::from_ptr(text.as_ptr()).to_string_lossy())).unwrap_or_default();
    let code = match code {
        GRAFT_ERROR_INVALID_ARGUMENT => ORT_INVALID_ARGUMENT,
        GRAFT_ERROR_UNSUPPORTED => ORT_NOT_IMPLEMENTED,
        _ => ORT_FAIL,
    };
    ort!(api, CreateStatus, code, said.as_ptr())
}

/// One overload of an operator: the runtime takes one element type a parameter.
#[repr(C)]
struct Op {
    base: OrtCustomOp, // first: the runtime has pointers to it
    api: *const OrtApi,
    description: *const graft_operator,
    index: u32,
    inputs: Vec<ONNXTensorElementDataType>,
    outputs: Vec<ONNXTensorElementDataType>,
}

unsafe fn op<'a>(op: *const OrtCustomOp) -> &'a Op {
    &*op.cast::<Op>()
}

impl Op {
    fn name(&self) -> &str {
        unsafe { CStr::from_ptr((*self.description).name) }.to_str().unwrap_or_default()
    }
    unsafe fn parameters(&self, outputs: bool) -> &[*const graft_parameter] {
        let d = &*self.description;
        let (first, count) = if outputs { (d.outputs, d.num_outputs) } else { (d.inputs, d.num_inputs) };
        if count == 0 {
            return &[];
        }
        std::slice::from_raw_parts(first, count as usize)
    }
}

unsafe fn characteristic(p: *const graft_parameter) -> OrtCustomOpInputOutputCharacteristic {
    match i64::from((*p).flags) {
        f if f & GRAFT_PARAMETER_VARIADIC != 0 => INPUT_OUTPUT_VARIADIC,
        f if f & GRAFT_PARAMETER_OPTIONAL != 0 => INPUT_OUTPUT_OPTIONAL,
        _ => INPUT_OUTPUT_REQUIRED,
    }
}

unsafe extern "C" fn get_name(this: *const OrtCustomOp) -> *const c_char {
    (*op(this).description).name
}
unsafe extern "C" fn get_provider(_: *const OrtCustomOp) -> *const c_char {
    null()
}
unsafe extern "C" fn input_count(this: *const OrtCustomOp) -> usize {
    op(this).inputs.len()
}
unsafe extern "C" fn output_count(this: *const OrtCustomOp) -> usize {
    op(this).outputs.len()
}
unsafe extern "C" fn input_type(this: *const OrtCustomOp, i: usize) -> ONNXTensorElementDataType {
    op(this).inputs[i]
}
unsafe extern "C" fn output_type(this: *const OrtCustomOp, i: usize) -> ONNXTensorElementDataType {
    op(this).outputs[i]
}
unsafe extern "C" fn input_kind(this: *const OrtCustomOp, i: usize) -> OrtCustomOpInputOutputCharacteristic {
    characteristic(op(this).parameters(false)[i])
}
unsafe extern "C" fn output_kind(this: *const OrtCustomOp, i: usize) -> OrtCustomOpInputOutputCharacteristic {
    characteristic(op(this).parameters(true)[i])
}
unsafe extern "C" fn memory_type(_: *const OrtCustomOp, _: usize) -> OrtMemType {
    OrtMemTypeDefault
}
unsafe fn last<'a>(this: *const OrtCustomOp, outputs: bool) -> Option<&'a graft_parameter> {
    op(this).parameters(outputs).last().map(|p| &**p)
}
unsafe extern "C" fn least_inputs(this: *const OrtCustomOp) -> c_int {
    last(this, false).map_or(0, |p| p.min_count as c_int)
}
unsafe extern "C" fn least_outputs(this: *const OrtCustomOp) -> c_int {
    last(this, true).map_or(0, |p| p.min_count as c_int)
}
unsafe extern "C" fn alike_inputs(this: *const OrtCustomOp) -> c_int {
    last(this, false).is_none_or(|p| p.type_variable >= 0 || p.num_types == 1).into()
}
unsafe extern "C" fn alike_outputs(this: *const OrtCustomOp) -> c_int {
    last(this, true).is_none_or(|p| p.type_variable >= 0 || p.num_types == 1).into()
}
unsafe extern "C" fn start_version(this: *const OrtCustomOp) -> c_int {
    (*op(this).description).since_version
}
unsafe extern "C" fn end_version(_: *const OrtCustomOp) -> c_int {
    c_int::MAX
}

/// A tensor with its shape.
struct Slot {
    shape: [i64; GRAFT_MAX_RANK as usize],
    tensor: graft_tensor,
}

impl Slot {
    fn new() -> Box<Slot> {
        let device = graft_device { type_: GRAFT_DEVICE_CPU as i32, id: 0 };
        let dtype = graft_data_type { code: 0, bits: 0, lanes: 0 };
        let mut slot = Box::new(Slot {
            shape: [0; GRAFT_MAX_RANK as usize],
            tensor: graft_tensor { data: null_mut(), device, ndim: -1, dtype, shape: null_mut(), strides: null_mut(), byte_offset: 0 },
        });
        slot.tensor.shape = slot.shape.as_mut_ptr();
        slot
    }

    /// Takes type and shape from the runtime; gives the rank.
    unsafe fn read(&mut self, api: *const OrtApi, info: *const OrtTensorTypeAndShapeInfo) -> Result<usize> {
        let (mut element, mut rank) = (0, 0);
        ok(api, ort!(api, GetTensorElementType, info, &mut element))?;
        ok(api, ort!(api, GetDimensionsCount, info, &mut rank))?;
        if rank > GRAFT_MAX_RANK as usize {
            return Err(Error::unsupported(format!("a tensor has rank {rank}, above {GRAFT_MAX_RANK}")));
        }
        ok(api, ort!(api, GetDimensions, info, self.tensor.shape, rank))?;
        let element = Type::of_onnx(element).ok_or_else(|| Error::unsupported(format!("element type {element} of ONNX Runtime")))?;
        self.tensor.dtype = element.c();
        self.tensor.ndim = rank as i32;
        Ok(rank)
    }

    /// Shows a value of the runtime.
    unsafe fn view(&mut self, api: *const OrtApi, value: *const OrtValue) -> Result<()> {
        let mut info = null_mut();
        ok(api, ort!(api, GetTensorTypeAndShape, value, &mut info))?;
        let read = self.read(api, info);
        ort!(api, ReleaseTensorTypeAndShapeInfo, info);
        read?;
        ok(api, ort!(api, GetTensorMutableData, value.cast_mut(), &mut self.tensor.data))
    }
}

/// Attributes of a node with what they point to.
#[derive(Default)]
struct Attributes {
    values: Vec<graft_attribute>,
    data: Vec<Vec<u64>>, // aligned for each kind
}

impl Attributes {
    unsafe fn add(&mut self, stated: &graft_attribute, bytes: &[u8], count: usize) {
        let mut room = vec![0u64; bytes.len() / 8 + 1]; // a closing zero at least
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), room.as_mut_ptr().cast(), bytes.len());
        let mut a = graft_attribute { flags: 0, int_value: 0, float_value: 0.0, data: null(), count: 0, ..*stated };
        let first: [u8; 8] = room[0].to_ne_bytes();
        match i64::from(stated.kind) {
            GRAFT_ATTRIBUTE_INT => a.int_value = i64::from_ne_bytes(first),
            GRAFT_ATTRIBUTE_FLOAT => a.float_value = f32::from_ne_bytes([first[0], first[1], first[2], first[3]]).into(),
            _ => (a.data, a.count) = (room.as_ptr().cast(), count as u64),
        }
        self.values.push(a);
        self.data.push(room);
    }

    /// Reads from a node those attributes that the operator states.
    unsafe fn read(api: *const OrtApi, info: *const OrtKernelInfo, d: &graft_operator) -> Result<Attributes> {
        let mut all = Attributes::default();
        for i in 0..d.num_attributes as usize {
            let stated = &**d.attributes.add(i);
            let (name, mut count) = (stated.name, 0usize);
            match i64::from(stated.kind) {
                GRAFT_ATTRIBUTE_INT => {
                    let mut value = 0i64;
                    if succeeds(api, ort!(api, KernelInfoGetAttribute_int64, info, name, &mut value)) {
                        all.add(stated, &value.to_ne_bytes(), 1);
                    }
                }
                GRAFT_ATTRIBUTE_FLOAT => {
                    let mut value = 0f32;
                    if succeeds(api, ort!(api, KernelInfoGetAttribute_float, info, name, &mut value)) {
                        all.add(stated, &value.to_ne_bytes(), 1);
                    }
                }
                GRAFT_ATTRIBUTE_STRING => {
                    if succeeds(api, ort!(api, KernelInfoGetAttribute_string, info, name, null_mut(), &mut count)) {
                        let mut bytes = vec![0u8; count];
                        ok(api, ort!(api, KernelInfoGetAttribute_string, info, name, bytes.as_mut_ptr().cast(), &mut count))?;
                        all.add(stated, &bytes, count.saturating_sub(1)); // the runtime counts the closing zero
                    }
                }
                GRAFT_ATTRIBUTE_INTS => {
                    if succeeds(api, ort!(api, KernelInfoGetAttributeArray_int64, info, name, null_mut(), &mut count)) {
                        let mut values = vec![0i64; count];
                        if count > 0 {
                            ok(api, ort!(api, KernelInfoGetAttributeArray_int64, info, name, values.as_mut_ptr(), &mut count))?;
                        }
                        all.add(stated, &values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>(), count);
                    }
                }
                _ => {
                    if succeeds(api, ort!(api, KernelInfoGetAttributeArray_float, info, name, null_mut(), &mut count)) {
                        let mut values = vec![0f32; count];
                        if count > 0 {
                            ok(api, ort!(api, KernelInfoGetAttributeArray_float, info, name, values.as_mut_ptr(), &mut count))?;
                        }
                        all.add(stated, &values.iter().flat_map(|v| v.to_ne_bytes()).collect::<Vec<_>>(), count);
                    }
                }
            }
        }
        Ok(all)
    }

    /// The same while a model loads.
    unsafe fn read_at_load(api: *const OrtApi, context: *const OrtShapeInferContext, d: &graft_operator) -> Attributes {
        const KINDS: [OrtOpAttrType; 6] = [ORT_OP_ATTR_UNDEFINED, ORT_OP_ATTR_INT, ORT_OP_ATTR_FLOAT, ORT_OP_ATTR_STRING, ORT_OP_ATTR_INTS, ORT_OP_ATTR_FLOATS];
        let mut all = Attributes::default();
        for i in 0..d.num_attributes as usize {
            let stated = &**d.attributes.add(i);
            let kind = KINDS[stated.kind as usize];
            let (mut attribute, mut size) = (null(), 0usize);
            if !succeeds(api, ort!(api, ShapeInferContext_GetAttribute, context, stated.name, &mut attribute)) {
                continue;
            }
            let mut bytes = vec![0u8; 64];
            if !succeeds(api, ort!(api, ReadOpAttr, attribute, kind, bytes.as_mut_ptr().cast(), bytes.len(), &mut size)) {
                if size <= bytes.len() {
                    continue;
                }
                bytes = vec![0u8; size];
                if !succeeds(api, ort!(api, ReadOpAttr, attribute, kind, bytes.as_mut_ptr().cast(), bytes.len(), &mut size)) {
                    continue;
                }
            }
            bytes.truncate(size);
            let count = match i64::from(stated.kind) {
                GRAFT_ATTRIBUTE_STRING => bytes.iter().position(|b| *b == 0).unwrap_or(size),
                GRAFT_ATTRIBUTE_INTS => size / 8,
                _ => size / 4,
            };
            all.add(stated, &bytes, count);
        }
        all
    }

    unsafe fn kernel(&self, index: u32, constants: &[*const graft_tensor]) -> Result<Made> {
        let pointers: Vec<*const graft_attribute> = self.values.iter().map(|a| a as *const _).collect();
        make(&graft_create_request {
            size: std::mem::size_of::<graft_create_request>() as u64,
            next: null(),
            operator_index: index,
            num_attributes: pointers.len() as u32,
            attributes: pointers.as_ptr(),
            constants: constants.as_ptr(),
            num_constants: constants.len() as u32,
            device: graft_device { type_: GRAFT_DEVICE_CPU as i32, id: 0 },
            reserved: 0,
        })
    }
}

/// One node of a session.
struct Node {
    api: *const OrtApi,
    name: String,
    allocator: *mut OrtAllocator,
    kernel: Option<Made>,
    _constants: Vec<Option<Box<Slot>>>, // the kernel may point to them
    inputs: usize,
    outputs: usize,
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kernel = None;
        if !self.allocator.is_null() {
            unsafe { ort!(self.api, ReleaseAllocator, self.allocator) };
        }
    }
}

unsafe extern "C" fn create_kernel(this: *const OrtCustomOp, _: *const OrtApi, info: *const OrtKernelInfo, kernel: *mut *mut c_void) -> *mut OrtStatus {
    let this = op(this);
    let api = this.api;
    status(api, this.name(), || {
        let mut node = Node { api, name: this.name().into(), allocator: null_mut(), kernel: None, _constants: vec![], inputs: 0, outputs: 0 };
        ok(api, ort!(api, KernelInfoGetAllocator, info, OrtMemTypeDefault, &mut node.allocator))?;
        ok(api, ort!(api, KernelInfo_GetInputCount, info, &mut node.inputs))?;
        ok(api, ort!(api, KernelInfo_GetOutputCount, info, &mut node.outputs))?;
        for i in 0..node.inputs {
            let (mut constant, mut value) = (0, null());
            let given = succeeds(api, ort!(api, KernelInfoGetConstantInput_tensor, info, i, &mut constant, &mut value));
            if !given || constant == 0 || value.is_null() {
                node._constants.push(None);
                continue;
            }
            let mut slot = Slot::new();
            slot.view(api, value)?;
            node._constants.push(Some(slot));
        }
        let constants: Vec<*const graft_tensor> = node._constants.iter().map(|c| c.as_ref().map_or(null(), |s| &raw const s.tensor)).collect();
        node.kernel = Some(Attributes::read(api, info, &*this.description)?.kernel(this.index, &constants)?);
        *kernel = Box::into_raw(Box::new(node)).cast();
        Ok(())
    })
}

unsafe extern "C" fn destroy_kernel(kernel: *mut c_void) {
    let node = Box::from_raw(kernel.cast::<Node>());
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| drop(node)));
}

/// What the C callbacks of a run context need.
struct Host {
    api: *const OrtApi,
    context: *mut OrtKernelContext,
}

unsafe extern "C" fn parallel_for(host: *mut c_void, count: u64, task: Option<unsafe extern "C" fn(*mut c_void, u64)>, task_context: *mut c_void) -> i32 {
    let host = &*host.cast::<Host>();
    // usize and u64 are one on the machines that plugins are built for.
    let task = std::mem::transmute::<Option<unsafe extern "C" fn(*mut c_void, u64)>, Option<unsafe extern "C" fn(*mut c_void, usize)>>(task);
    let done = ort!(host.api, KernelContext_ParallelFor, host.context, task, count as usize, 0, task_context);
    (if succeeds(host.api, done) { GRAFT_OK } else { GRAFT_ERROR_INTERNAL }) as i32
}

unsafe extern "C" fn log(host: *mut c_void, level: i32, text: *const c_char) {
    const LEVELS: [OrtLoggingLevel; 4] = [ORT_LOGGING_LEVEL_VERBOSE, ORT_LOGGING_LEVEL_INFO, ORT_LOGGING_LEVEL_WARNING, ORT_LOGGING_LEVEL_ERROR];
    let host = &*host.cast::<Host>();
    let mut logger = null();
    if succeeds(host.api, ort!(host.api, KernelContext_GetLogger, host.context, &mut logger)) {
        let level = LEVELS[level.clamp(0, 3) as usize];
        succeeds(host.api, ort!(host.api, Logger_LogMessage, logger, level, text, c"plugin".as_ptr(), 0, c"run".as_ptr()));
    }
}

/// Scratch of one run, given back when it ends.
struct Workspace(*mut OrtAllocator, *mut c_void);

impl Drop for Workspace {
    fn drop(&mut self) {
        if !self.1.is_null() {
            unsafe { (*self.0).Free.expect("an allocator frees")(self.0, self.1) };
        }
    }
}

impl Node {
    unsafe fn compute(&self, context: *mut OrtKernelContext) -> Result<()> {
        let api = self.api;
        let made = self.kernel.as_ref().ok_or_else(|| Error::internal("no kernel"))?;
        let mut slots = Vec::with_capacity(self.inputs + self.outputs);
        let mut inputs = Vec::with_capacity(self.inputs);
        for i in 0..self.inputs {
            let mut value = null();
            ok(api, ort!(api, KernelContext_GetInput, context, i, &mut value))?;
            if value.is_null() {
                inputs.push(null());
                continue;
            }
            let mut slot = Slot::new();
            slot.view(api, value)?;
            inputs.push(&raw const slot.tensor);
            slots.push(slot);
        }
        let mut outputs = Vec::with_capacity(self.outputs);
        for _ in 0..self.outputs {
            let mut slot = Slot::new();
            outputs.push(&raw mut slot.tensor);
            slots.push(slot);
        }
        made.infer(&inputs, &outputs)?;
        for (i, output) in outputs.iter_mut().enumerate() {
            let t = &mut **output;
            let shape = std::slice::from_raw_parts(t.shape, t.ndim.max(0) as usize);
            if shape.iter().any(|d| *d < 0) {
                return Err(Error::invalid(format!("output {i} has the shape {shape:?}, which is not known")));
            }
            let mut value = null_mut();
            ok(api, ort!(api, KernelContext_GetOutput, context, i, t.shape, shape.len(), &mut value))?;
            if value.is_null() {
                *output = null_mut(); // an optional output that the node leaves out
                continue;
            }
            made.require_made(i, t)?;
            ok(api, ort!(api, GetTensorMutableData, value, &mut t.data))?;
        }
        let mut host = Host { api, context };
        let threads = std::thread::available_parallelism().map_or(0, |n| n.get() as i32);
        let shapes: Vec<*const graft_tensor> = outputs.iter().map(|o| o.cast_const()).collect();
        let bytes = made.workspace(&inputs, &shapes, threads)?;
        let mut room = Workspace(self.allocator, null_mut());
        if bytes > 0 {
            let size = usize::try_from(bytes).ok().and_then(|n| n.checked_add(63));
            if let Some(size) = size {
                room.1 = (*self.allocator).Alloc.expect("an allocator allocates")(self.allocator, size);
            }
            if room.1.is_null() {
                return Err(Error { code: GRAFT_ERROR_OUT_OF_MEMORY as i32, text: format!("no {bytes} bytes of workspace") });
            }
        }
        let run = graft_run_context {
            size: std::mem::size_of::<graft_run_context>() as u64,
            next: null(),
            stream: null_mut(),
            workspace: if bytes > 0 { room.1.cast::<u8>().add(room.1.cast::<u8>().align_offset(64)).cast() } else { null_mut() },
            workspace_size: bytes,
            parallel_for: Some(parallel_for),
            parallel_context: (&raw mut host).cast(),
            log: Some(log),
            log_context: (&raw mut host).cast(),
            concurrency: threads,
            reserved: 0,
        };
        made.run(&run, &inputs, &outputs)
    }
}

unsafe extern "C" fn compute_kernel(kernel: *mut c_void, context: *mut OrtKernelContext) -> *mut OrtStatus {
    let node = &*kernel.cast::<Node>();
    status(node.api, &node.name, || node.compute(context))
}

/// A name for a length like no other in this process, nor in the one that wrote the model: the runtime takes equal names
/// for equal lengths.
fn fresh() -> String {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    static STARTED: std::sync::OnceLock<u128> = std::sync::OnceLock::new();
    let started = STARTED.get_or_init(|| std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos()));
    format!("graft_dim_{:x}_{started:x}_{}", &raw const COUNTER as usize, COUNTER.fetch_add(1, Ordering::Relaxed))
}

/// Infers what can be inferred while a model loads, and is silent about the rest: a contradiction shows in the run.
unsafe extern "C" fn infer_at_load(this: *const OrtCustomOp, context: *mut OrtShapeInferContext) -> *mut OrtStatus {
    guard(null_mut(), || infer(op(this), context));
    null_mut()
}

unsafe fn infer(this: &Op, context: *mut OrtShapeInferContext) -> Result<()> {
    let api = this.api;
    let silent = || Error::internal("a shape is not known");
    let mut count = 0;
    ok(api, ort!(api, ShapeInferContext_GetInputCount, context, &mut count))?;
    let mut names: Vec<String> = vec![];
    let (mut slots, mut inputs, mut outputs) = (vec![], vec![], vec![]);
    for i in 0..count {
        let (mut info, mut element) = (null_mut(), 0);
        ok(api, ort!(api, ShapeInferContext_GetInputTypeShape, context, i, &mut info))?;
        ok(api, ort!(api, GetTensorElementType, info, &mut element))?;
        if element == ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED {
            inputs.push(null()); // an input that the node leaves out
            continue;
        }
        let mut slot = Slot::new();
        let rank = slot.read(api, info)?;
        if rank == 0 {
            return Err(silent()); // so the runtime shows an unknown rank
        }
        let mut symbols = vec![null(); rank];
        ok(api, ort!(api, GetSymbolicDimensions, info, symbols.as_mut_ptr(), rank))?;
        for (axis, symbol) in symbols.iter().enumerate() {
            if slot.shape[axis] >= 0 {
                continue;
            }
            slot.shape[axis] = GRAFT_UNKNOWN_DIM;
            let name = if symbol.is_null() { String::new() } else { CStr::from_ptr(*symbol).to_string_lossy().into_owned() };
            if !name.is_empty() {
                let at = names.iter().position(|n| *n == name).unwrap_or_else(|| {
                    names.push(name);
                    names.len() - 1
                });
                slot.shape[axis] = -2 - at as i64;
            }
        }
        inputs.push(&raw const slot.tensor);
        slots.push(slot);
    }
    let parameters = this.parameters(true);
    if parameters.iter().any(|p| i64::from((**p).flags) & GRAFT_PARAMETER_VARIADIC != 0) {
        return Err(silent());
    }
    for _ in parameters {
        let mut slot = Slot::new();
        outputs.push(&raw mut slot.tensor);
        slots.push(slot);
    }
    let made = Attributes::read_at_load(api, context, &*this.description).kernel(this.index, &[])?;
    made.infer(&inputs, &outputs)?;
    for (i, output) in outputs.iter().enumerate() {
        // The runtime does not tell how many outputs a node has: optional ones stay as the model states them.
        if i64::from((*parameters[i]).flags) & GRAFT_PARAMETER_OPTIONAL != 0 {
            break;
        }
        let t = &**output;
        let (Ok(rank), Some(element)) = (usize::try_from(t.ndim), Type::of(t.dtype)) else { continue };
        let shape = std::slice::from_raw_parts(t.shape, rank);
        let sizes: Vec<i64> = shape.iter().map(|d| (*d).max(-1)).collect();
        let named: Vec<CString> = shape
            .iter()
            .map(|d| match *d {
                d if d >= 0 => String::new(),
                d => usize::try_from(-2 - d).ok().and_then(|at| names.get(at).cloned()).unwrap_or_else(fresh),
            })
            .map(|n| CString::new(n).unwrap_or_default())
            .collect();
        let pointers: Vec<*const c_char> = named.iter().map(|n| n.as_ptr()).collect();
        let mut info = null_mut();
        ok(api, ort!(api, CreateTensorTypeAndShapeInfo, &mut info))?;
        let done = ok(api, ort!(api, SetTensorElementType, info, element.onnx()))
            .and_then(|()| ok(api, ort!(api, SetDimensions, info, sizes.as_ptr(), rank)))
            .and_then(|()| ok(api, ort!(api, SetSymbolicDimensions, info, pointers.as_ptr().cast_mut(), rank)))
            .and_then(|()| ok(api, ort!(api, ShapeInferContext_SetOutputTypeShape, context, i, info)));
        ort!(api, ReleaseTensorTypeAndShapeInfo, info);
        done?;
    }
    Ok(())
}

/// Up to 1.23 the runtime's inference ends the process when it meets an absent input.
unsafe fn may_infer(base: *const OrtApiBase, inputs: &[*const graft_parameter]) -> bool {
    if !inputs.iter().any(|p| i64::from((**p).flags) & GRAFT_PARAMETER_OPTIONAL != 0) {
        return true;
    }
    let Some(version) = (*base).GetVersionString else { return false };
    let text = CStr::from_ptr(version()).to_string_lossy().into_owned();
    let mut parts = text.split('.').map(|p| p.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) >= (1, 24)
}

unsafe fn overloads(base: *const OrtApiBase, api: *const OrtApi, description: *const graft_operator, index: u32, set: &mut Vec<*const c_void>) {
    let d = &*description;
    let part = |first: *const *const graft_parameter, count: u32| if count == 0 { &[][..] } else { std::slice::from_raw_parts(first, count as usize) };
    let (inputs, outputs) = (part(d.inputs, d.num_inputs), part(d.outputs, d.num_outputs));
    let mut choices: Vec<HashMap<i32, graft_data_type>> = vec![HashMap::new()];
    let mut seen = vec![];
    for p in inputs.iter().map(|p| &**p) {
        if p.type_variable < 0 || seen.contains(&p.type_variable) {
            continue;
        }
        seen.push(p.type_variable);
        choices = choices
            .iter()
            .flat_map(|c| (0..p.num_types as usize).map(move |t| c.iter().map(|(k, v)| (*k, *v)).chain([(p.type_variable, *p.types.add(t))]).collect()))
            .collect();
    }
    let infers = may_infer(base, inputs);
    for choice in choices {
        let chosen = |p: &*const graft_parameter| {
            let p = &**p;
            let only = || (p.num_types == 1).then(|| *p.types);
            let element = choice.get(&p.type_variable).copied().or_else(only);
            element.and_then(Type::of).map_or(ONNX_TENSOR_ELEMENT_DATA_TYPE_UNDEFINED, Type::onnx)
        };
        let mut made = Box::new(Op {
            base: std::mem::zeroed(), // null pointers: functions that are not there
            api,
            description,
            index,
            inputs: inputs.iter().map(chosen).collect(),
            outputs: outputs.iter().map(chosen).collect(),
        });
        let c = &mut made.base;
        c.version = VERSION;
        c.GetName = Some(get_name);
        c.GetExecutionProviderType = Some(get_provider);
        c.GetInputTypeCount = Some(input_count);
        c.GetInputType = Some(input_type);
        c.GetOutputTypeCount = Some(output_count);
        c.GetOutputType = Some(output_type);
        c.GetInputCharacteristic = Some(input_kind);
        c.GetOutputCharacteristic = Some(output_kind);
        c.GetInputMemoryType = Some(memory_type);
        c.GetVariadicInputMinArity = Some(least_inputs);
        c.GetVariadicInputHomogeneity = Some(alike_inputs);
        c.GetVariadicOutputMinArity = Some(least_outputs);
        c.GetVariadicOutputHomogeneity = Some(alike_outputs);
        c.GetStartVersion = Some(start_version);
        c.GetEndVersion = Some(end_version);
        c.CreateKernelV2 = Some(create_kernel);
        c.KernelComputeV2 = Some(compute_kernel);
        c.KernelDestroy = Some(destroy_kernel);
        if infers {
            c.InferOutputShapeFn = Some(infer_at_load);
        }
        set.push((Box::leak(made) as *const Op).cast()); // sessions hold pointers to it
    }
}

unsafe fn api_of(base: *const OrtApiBase) -> Result<*const OrtApi> {
    let api = (*base).GetApi.map_or(null(), |get| get(VERSION));
    if api.is_null() {
        return Err(Error::unsupported(format!("this ONNX Runtime is too old: API {VERSION} is needed, which 1.18 and later have")));
    }
    Ok(api)
}

/// The operators for one runtime, made at the first call for it.
pub(crate) unsafe fn ops_for(base: *const OrtApiBase) -> Result<&'static [*const c_void]> {
    static SETS: Mutex<Option<HashMap<usize, usize>>> = Mutex::new(None);
    let api = api_of(base)?;
    let info = &library()?.info;
    let mut sets = SETS.lock().unwrap_or_else(|e| e.into_inner());
    let at = *sets.get_or_insert_default().entry(api as usize).or_insert_with(|| {
        let mut set = vec![];
        for i in 0..info.num_operators {
            overloads(base, api, *info.operators.add(i as usize), i, &mut set);
        }
        Box::leak(Box::new(set)) as *const Vec<*const c_void> as usize
    });
    Ok(&*(at as *const Vec<*const c_void>))
}

/// One domain "graft" in the session options of one program, which all libraries share: see graft_ort_registrar.
#[repr(C)]
struct Domain {
    registrar: graft_ort_registrar, // first, so that join finds the rest beside it
    api: *const OrtApi,
    owners: Mutex<HashMap<String, String>>, // operator and provider: plugin
}

unsafe extern "C" fn join(registrar: *const graft_ort_registrar, plugin: *const c_char, ops: *const *const c_void, count: u64, message: *mut graft_message) -> i32 {
    guard(message, || {
        let domain = &*registrar.cast::<Domain>();
        let plugin = CStr::from_ptr(plugin).to_string_lossy().into_owned();
        let mut owners = domain.owners.lock().unwrap_or_else(|e| e.into_inner());
        let mut added = vec![];
        for i in 0..count as usize {
            let op = (*ops.add(i)).cast::<OrtCustomOp>();
            let name = CStr::from_ptr((*op).GetName.expect("operators have names")(op)).to_string_lossy().into_owned();
            let provider = (*op).GetExecutionProviderType.map_or(null(), |get| get(op));
            let provider = if provider.is_null() { String::new() } else { CStr::from_ptr(provider).to_string_lossy().into_owned() };
            match owners.get(&format!("{name}\n{provider}")) {
                Some(owner) if *owner != plugin => {
                    return Err(Error::invalid(format!("operator {name} is registered by plugin {owner} already; leave one of the two out")));
                }
                Some(_) => {}
                None => added.push((format!("{name}\n{provider}"), op)),
            }
        }
        for (key, op) in added {
            ok(domain.api, ort!(domain.api, CustomOpDomain_Add, domain.registrar.domain.cast(), op))?;
            owners.insert(key, plugin.clone());
        }
        Ok(())
    })
}

/// The registrar of some options, which is made where there is none. It is never freed: options are copied and freed
/// without notice, and the runtime holds only pointers.
unsafe fn registrar(api: *const OrtApi, options: *mut OrtSessionOptions) -> Result<*const graft_ort_registrar> {
    let key = CString::new(GRAFT_ORT_DOMAIN_KEY).unwrap_or_default();
    let mut present = 0;
    ok(api, ort!(api, HasSessionConfigEntry, options, key.as_ptr(), &mut present))?;
    if present != 0 {
        let (mut text, mut size) = ([0 as c_char; 32], 32);
        ok(api, ort!(api, GetSessionConfigEntry, options, key.as_ptr(), text.as_mut_ptr(), &mut size))?;
        let text = CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned();
        return match usize::from_str_radix(text.trim_start_matches("0x"), 16) {
            Ok(address) if address != 0 => Ok(address as *const graft_ort_registrar),
            _ => Err(Error::invalid(format!("session config entry {GRAFT_ORT_DOMAIN_KEY} is {text}, needed is the address that a plugin wrote; remove the entry"))),
        };
    }
    let mut domain = null_mut();
    let name = CString::new(GRAFT_ONNX_DOMAIN).unwrap_or_default();
    ok(api, ort!(api, CreateCustomOpDomain, name.as_ptr(), &mut domain))?;
    ok(api, ort!(api, AddCustomOpDomain, options, domain))?;
    let made = Box::leak(Box::new(Domain {
        registrar: graft_ort_registrar { size: std::mem::size_of::<graft_ort_registrar>() as u64, next: null(), join: Some(join), domain: domain.cast() },
        api,
        owners: Mutex::new(HashMap::new()),
    }));
    let text = CString::new(format!("{:#x}", made as *const Domain as usize)).unwrap_or_default();
    ok(api, ort!(api, AddSessionConfigEntry, options, key.as_ptr(), text.as_ptr()))?;
    Ok(&made.registrar)
}

pub(crate) unsafe fn register(options: *mut OrtSessionOptions, base: *const OrtApiBase) -> *mut OrtStatus {
    let any = (*base).GetApi.map_or(null(), |get| get(1)); // every runtime has it: enough to make a status
    let name = library().map_or("plugin", |l| l.plugin.name);
    status(any, name, || {
        let ops = ops_for(base)?;
        if ops.is_empty() {
            return Ok(());
        }
        let registrar = registrar(api_of(base)?, options)?;
        let mut text = [0 as c_char; 512];
        let mut message = graft_message { size: std::mem::size_of::<graft_message>() as u64, next: null(), text: text.as_mut_ptr(), capacity: text.len() as u64 };
        let plugin = CString::new(name).unwrap_or_default();
        let code = (*registrar).join.ok_or_else(|| Error::internal("a registrar without join"))?(registrar, plugin.as_ptr(), ops.as_ptr(), ops.len() as u64, &mut message);
        if i64::from(code) != GRAFT_OK {
            return Err(Error { code, text: CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned() });
        }
        Ok(())
    })
}
