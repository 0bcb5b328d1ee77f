//! The table of functions, over operators behind one trait.

use crate::abi::*;
use crate::context::{Create, Fold, Infer, Run, Shapes};
use crate::{adapter, Description, Error, Result, Type};
use std::ffi::{c_char, c_void, CStr, CString};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr::null;
use std::sync::OnceLock;

/// One operator of a plugin; an object is the kernel of one node. `run` may be called several times at once.
pub trait Operator: Send + Sync + Sized + 'static {
    fn describe() -> Description;
    /// Reads attributes. Must be cheap: hosts make kernels just to infer shapes.
    fn create(request: &Create) -> Result<Self>;
    fn infer(&self, context: &mut Infer) -> Result<()>;
    /// Bytes of scratch that a run needs.
    fn workspace(&self, _shapes: &Shapes) -> Result<u64> {
        Ok(0)
    }
    fn run(&self, context: &Run) -> Result<()>;
}

/// [`Operator`] as an object.
pub trait Kernel: Send + Sync {
    fn infer(&self, context: &mut Infer) -> Result<()>;
    fn workspace(&self, shapes: &Shapes) -> Result<u64>;
    fn run(&self, context: &Run) -> Result<()>;
}

struct Boxed<T>(T);

impl<T: Operator> Kernel for Boxed<T> {
    fn infer(&self, context: &mut Infer) -> Result<()> {
        self.0.infer(context)
    }
    fn workspace(&self, shapes: &Shapes) -> Result<u64> {
        self.0.workspace(shapes)
    }
    fn run(&self, context: &Run) -> Result<()> {
        self.0.run(context)
    }
}

/// An operator with the maker of its kernels.
pub struct Entry {
    pub(crate) description: *const graft_operator,
    make: fn(&Create) -> Result<Box<dyn Kernel>>,
}

pub fn entry<T: Operator>() -> Entry {
    Entry { description: T::describe().freeze(), make: |request| Ok(Box::new(Boxed(T::create(request)?))) }
}

/// What a library is.
pub struct Plugin {
    pub name: &'static str,
    pub version: &'static str,
    pub summary: &'static str,
    pub entries: Vec<Entry>,
    pub fold: Option<fn(&Fold) -> Result<()>>,
}

/// A plugin with what its table points to; or why there is none.
pub(crate) struct Library {
    pub plugin: Plugin,
    pub info: graft_plugin_info,
    table: graft_plugin,
}
unsafe impl Send for Library {}
unsafe impl Sync for Library {}

static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();

pub(crate) fn library() -> Result<&'static Library> {
    match LIBRARY.get() {
        Some(Ok(library)) => Ok(library),
        Some(Err(text)) => Err(Error::internal(text.clone())),
        None => Err(Error::internal("the library was not initialised")),
    }
}

fn text(s: &str) -> *const c_char {
    CString::new(s).unwrap_or_default().into_raw()
}

/// Called by [`plugin!`](crate::plugin), first of all.
pub fn initialise(make: fn() -> Plugin) {
    LIBRARY.get_or_init(|| {
        let plugin = catch_unwind(make).map_err(|e| format!("describe panicked: {}", said(&e)))?;
        let operators: &'static [*const graft_operator] = Vec::leak(plugin.entries.iter().map(|e| e.description).collect());
        let info = graft_plugin_info {
            size: std::mem::size_of::<graft_plugin_info>() as u64,
            next: null(),
            name: text(plugin.name),
            version: text(plugin.version),
            summary: text(plugin.summary),
            device_type: GRAFT_DEVICE_CPU as i32,
            num_operators: operators.len() as u32,
            operators: operators.as_ptr(),
        };
        let table = new_table(plugin.fold.is_some());
        Ok(Library { plugin, info, table })
    });
}

fn new_table(folds: bool) -> graft_plugin {
    let ops: &'static graft_ort_ops = Box::leak(Box::new(graft_ort_ops {
        size: std::mem::size_of::<graft_ort_ops>() as u64,
        next: null(),
        name: text(GRAFT_EXTENSION_ORT_OPS),
        get: Some(ort_ops),
    }));
    graft_plugin {
        size: std::mem::size_of::<graft_plugin>() as u64,
        next: (ops as *const graft_ort_ops).cast(),
        abi_major: GRAFT_ABI_MAJOR as u32,
        abi_minor: GRAFT_ABI_MINOR as u32,
        describe: Some(describe),
        probe: Some(probe),
        fold: if folds { Some(fold) } else { None },
        create: Some(create),
        infer_shapes: Some(infer_shapes),
        workspace_size: Some(workspace_size),
        run: Some(run),
        destroy: Some(destroy),
    }
}

/// The table, which a host reads whether or not the operators could be described.
pub fn table() -> *const graft_plugin {
    static FAILED: OnceLock<Failed> = OnceLock::new();
    struct Failed(graft_plugin);
    unsafe impl Send for Failed {}
    unsafe impl Sync for Failed {}
    match library() {
        Ok(library) => &library.table,
        Err(_) => &FAILED.get_or_init(|| Failed(new_table(false))).0,
    }
}

/// What a panic said.
pub(crate) fn said(panic: &Box<dyn std::any::Any + Send>) -> String {
    panic.downcast_ref::<&str>().map(|s| s.to_string()).or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}

pub(crate) unsafe fn put(message: *mut graft_message, text: &str) {
    let Some(message) = message.as_mut() else { return };
    if message.text.is_null() || message.capacity == 0 {
        return;
    }
    let count = text.len().min(message.capacity as usize - 1);
    std::ptr::copy_nonoverlapping(text.as_ptr(), message.text.cast(), count);
    *message.text.add(count) = 0;
}

/// Errors and panics stop here: they become a code and a text.
pub(crate) unsafe fn guard(message: *mut graft_message, body: impl FnOnce() -> Result<()>) -> i32 {
    let error = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return GRAFT_OK as i32,
        Ok(Err(error)) => error,
        Err(panic) => Error::internal(format!("it panicked: {}", said(&panic))),
    };
    put(message, &error.text);
    error.code
}

/// A slice of the host's, which may be null where it is empty.
unsafe fn list<'a, T>(first: *const T, count: u64) -> &'a [T] {
    if count == 0 {
        return &[];
    }
    std::slice::from_raw_parts(first, count as usize)
}

unsafe extern "C" fn describe() -> *const graft_plugin_info {
    library().map_or(null(), |l| &l.info)
}

unsafe extern "C" fn probe(device: *const graft_device, result: *mut graft_probe_result, message: *mut graft_message) -> i32 {
    guard(message, || {
        library()?;
        (*result).score = if i64::from((*device).type_) == GRAFT_DEVICE_CPU { 50 } else { 0 };
        if (*result).score == 0 {
            put(message, "this library runs on the CPU only");
        }
        Ok(())
    })
}

unsafe extern "C" fn fold(request: *const graft_fold_request, message: *mut graft_message) -> i32 {
    guard(message, || match library()?.plugin.fold {
        Some(fold) => fold(&Fold(&*request)),
        None => Err(Error::unsupported("this library folds nothing")),
    })
}

/// A kernel with its operator.
pub(crate) struct Made {
    pub description: *const graft_operator,
    pub kernel: Box<dyn Kernel>,
}

pub(crate) unsafe fn make(request: &graft_create_request) -> Result<Made> {
    let library = library()?;
    let entry = library
        .plugin
        .entries
        .get(request.operator_index as usize)
        .ok_or_else(|| Error::invalid(format!("operator {} asked for, there are {}", request.operator_index, library.plugin.entries.len())))?;
    let kernel = (entry.make)(&Create { description: &*entry.description, request })?;
    Ok(Made { description: entry.description, kernel })
}

unsafe extern "C" fn create(request: *const graft_create_request, kernel: *mut *mut c_void, message: *mut graft_message) -> i32 {
    guard(message, || {
        *kernel = Box::into_raw(Box::new(make(&*request)?)).cast();
        Ok(())
    })
}

unsafe extern "C" fn destroy(kernel: *mut c_void) {
    if !kernel.is_null() {
        let kernel = Box::from_raw(kernel.cast::<Made>());
        let _ = catch_unwind(AssertUnwindSafe(|| drop(kernel)));
    }
}

unsafe fn parameter<'a>(list: &[*const graft_parameter], index: usize) -> Option<&'a graft_parameter> {
    let last = list.last().map(|p| &**p).filter(|p| i64::from(p.flags) & GRAFT_PARAMETER_VARIADIC != 0);
    list.get(index).map(|p| &**p).or(last)
}

/// Whether tensors fit the parameters: required ones present, none too many, types as stated.
unsafe fn check(side: &str, parameters: &[*const graft_parameter], tensors: &[*const graft_tensor]) -> Result<()> {
    let mut bound = [None; 8];
    for (i, t) in tensors.iter().enumerate() {
        let p = parameter(parameters, i).ok_or_else(|| Error::invalid(format!("{} {side}s given, at most {} stated", tensors.len(), parameters.len())))?;
        let name = CStr::from_ptr(p.name).to_string_lossy();
        let Some(t) = t.as_ref() else {
            if i64::from(p.flags) & GRAFT_PARAMETER_OPTIONAL != 0 {
                continue;
            }
            return Err(Error::invalid(format!("{side} {i} ({name}) is absent and not optional")));
        };
        let found = Type::of(t.dtype);
        let mut allowed = list(p.types, u64::from(p.num_types)).iter().any(|x| found.is_some() && Type::of(*x) == found);
        if let Some(b) = usize::try_from(p.type_variable).ok().and_then(|v| bound.get_mut(v)) {
            allowed &= b.is_none() || *b == found;
            *b = found;
        }
        if !allowed {
            return Err(Error::invalid(format!("{side} {i} ({name}) holds {found:?}, which the operator does not take")));
        }
    }
    for (i, p) in parameters.iter().enumerate().skip(tensors.len()) {
        if i64::from((**p).flags) & (GRAFT_PARAMETER_OPTIONAL | GRAFT_PARAMETER_VARIADIC) == 0 {
            return Err(Error::invalid(format!("{side} {i} ({}) is absent and not optional", CStr::from_ptr((**p).name).to_string_lossy())));
        }
    }
    if let Some(p) = parameters.last().map(|p| &**p) {
        let least = parameters.len() - 1 + p.min_count as usize;
        if i64::from(p.flags) & GRAFT_PARAMETER_VARIADIC != 0 && tensors.len() < least {
            return Err(Error::invalid(format!("{} {side}s given, at least {least} needed", tensors.len())));
        }
    }
    Ok(())
}

/// Nothing bounds the other sizes of an empty tensor: a kernel that goes over rows of nothing may never end.
unsafe fn countable(inputs: &[*const graft_tensor]) -> Result<()> {
    for (i, t) in inputs.iter().enumerate() {
        let Some(t) = t.as_ref() else { continue };
        let shape = list(t.shape, t.ndim.max(0) as u64);
        let places = shape.iter().try_fold(1i64, |n, d| n.checked_mul((*d).max(1)));
        let most = if shape.contains(&0) { 1 << 27 } else { i64::MAX / 16 };
        if places.is_none_or(|n| n > most) {
            return Err(Error::invalid(format!("input {i} has the shape {shape:?}, needed are at most {most} places")));
        }
    }
    Ok(())
}

impl Made {
    pub unsafe fn infer(&self, inputs: &[*const graft_tensor], outputs: &[*mut graft_tensor]) -> Result<()> {
        let d = &*self.description;
        check("input", list(d.inputs, u64::from(d.num_inputs)), inputs)?;
        for output in outputs {
            if let Some(output) = output.as_mut() {
                output.ndim = -1; // until it is set
            }
        }
        self.kernel.infer(&mut Infer { inputs, outputs })
    }

    /// An error where an output of the node was given no shape.
    pub unsafe fn require_made(&self, index: usize, output: &graft_tensor) -> Result<()> {
        if output.ndim >= 0 {
            return Ok(());
        }
        let d = &*self.description;
        let p = parameter(list(d.outputs, u64::from(d.num_outputs)), index);
        let name = p.map_or("not stated".into(), |p| CStr::from_ptr(p.name).to_string_lossy());
        Err(Error::invalid(format!("the node has output {index} ({name}), which its inputs and attributes do not make")))
    }

    pub unsafe fn workspace(&self, inputs: &[*const graft_tensor], outputs: &[*const graft_tensor], concurrency: i32) -> Result<u64> {
        countable(inputs)?;
        self.kernel.workspace(&Shapes { inputs, outputs, concurrency })
    }

    pub unsafe fn run(&self, context: &graft_run_context, inputs: &[*const graft_tensor], outputs: &[*mut graft_tensor]) -> Result<()> {
        let d = &*self.description;
        check("input", list(d.inputs, u64::from(d.num_inputs)), inputs)?;
        check("output", list(d.outputs, u64::from(d.num_outputs)), list(outputs.as_ptr().cast(), outputs.len() as u64))?;
        countable(inputs)?;
        self.kernel.run(&Run { context, inputs, outputs })
    }
}

unsafe extern "C" fn infer_shapes(
    kernel: *const c_void, inputs: *const *const graft_tensor, num_inputs: u64, outputs: *const *mut graft_tensor, num_outputs: u64, message: *mut graft_message,
) -> i32 {
    guard(message, || {
        let made = &*kernel.cast::<Made>();
        let outputs = list(outputs, num_outputs);
        made.infer(list(inputs, num_inputs), outputs)?;
        for (i, output) in outputs.iter().enumerate() {
            if let Some(output) = output.as_ref() {
                made.require_made(i, output)?;
            }
        }
        Ok(())
    })
}

unsafe extern "C" fn workspace_size(
    kernel: *const c_void, inputs: *const *const graft_tensor, num_inputs: u64, outputs: *const *const graft_tensor, num_outputs: u64, concurrency: i32, bytes: *mut u64,
    message: *mut graft_message,
) -> i32 {
    guard(message, || {
        *bytes = (*kernel.cast::<Made>()).workspace(list(inputs, num_inputs), list(outputs, num_outputs), concurrency)?;
        Ok(())
    })
}

unsafe extern "C" fn run(
    kernel: *const c_void, context: *const graft_run_context, inputs: *const *const graft_tensor, num_inputs: u64, outputs: *const *mut graft_tensor, num_outputs: u64,
    message: *mut graft_message,
) -> i32 {
    guard(message, || (*kernel.cast::<Made>()).run(&*context, list(inputs, num_inputs), list(outputs, num_outputs)))
}

unsafe extern "C" fn ort_ops(base: *const c_void, ops: *mut *const *const c_void, count: *mut u64, message: *mut graft_message) -> i32 {
    guard(message, || {
        let set = adapter::ops_for(base.cast())?;
        *ops = set.as_ptr();
        *count = set.len() as u64;
        Ok(())
    })
}
