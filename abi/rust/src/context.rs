//! What the kit hands to operators: tensors, attributes, and everything that a run may use.

use crate::abi::*;
use crate::{Error, Result, Type};
use std::ffi::{c_void, CStr};
use std::ptr::null_mut;

/// A Rust type of a tensor's elements.
pub trait Element: Copy + Send + Sync + 'static {
    const TYPE: Type;
}
macro_rules! elements {
    ($($rust:ty: $t:ident),*) => { $(impl Element for $rust { const TYPE: Type = Type::$t; })* };
}
elements!(f32: F32, f64: F64, i8: I8, i16: I16, i32: I32, i64: I64, u8: U8, u16: U16, u32: U32, u64: U64);

/// A tensor of the host's. While shapes are inferred it has no data, and sizes below 0 are not known.
#[derive(Clone, Copy)]
pub struct Tensor<'a>(pub(crate) &'a graft_tensor);

// A view through which nothing is written.
unsafe impl Send for Tensor<'_> {}
unsafe impl Sync for Tensor<'_> {}

impl<'a> Tensor<'a> {
    pub fn shape(&self) -> &'a [i64] {
        if self.0.ndim <= 0 {
            return &[];
        }
        unsafe { std::slice::from_raw_parts(self.0.shape, self.0.ndim as usize) }
    }
    pub fn element_type(&self) -> Option<Type> {
        Type::of(self.0.dtype)
    }
    pub fn elements(&self) -> i64 {
        self.shape().iter().product()
    }
    /// Elements between neighbours along an axis.
    pub fn stride(&self, axis: usize) -> i64 {
        if self.0.strides.is_null() {
            return self.shape()[axis + 1..].iter().product();
        }
        unsafe { *self.0.strides.add(axis) }
    }
    /// Elements between the first and the last one, counted with both: what strides reach.
    fn reach(&self) -> usize {
        if self.elements() == 0 {
            return 0;
        }
        1 + (0..self.shape().len()).map(|i| (self.shape()[i] - 1) * self.stride(i)).sum::<i64>() as usize
    }
    /// The elements, in memory's order: row-major, but where the input is strided.
    pub fn data<T: Element>(&self) -> Result<&'a [T]> {
        if self.element_type() != Some(T::TYPE) {
            return Err(Error::invalid(format!("a tensor holds {:?}, needed is {:?}", self.element_type(), T::TYPE)));
        }
        let count = self.reach();
        if count == 0 {
            return Ok(&[]);
        }
        Ok(unsafe { std::slice::from_raw_parts(self.0.data.cast::<u8>().add(self.0.byte_offset as usize).cast(), count) })
    }
}

unsafe fn find<'a>(list: *const *const graft_attribute, count: u32, name: &str) -> Option<&'a graft_attribute> {
    (0..count as usize).map(|i| &**list.add(i)).find(|a| CStr::from_ptr(a.name).to_bytes() == name.as_bytes())
}

/// What a kernel is made from.
pub struct Create<'a> {
    pub(crate) description: &'a graft_operator,
    pub(crate) request: &'a graft_create_request,
}

impl Create<'_> {
    /// The value given, else the default.
    fn attribute(&self, name: &str, kind: i64) -> Result<&graft_attribute> {
        unsafe {
            let stated = find(self.description.attributes, self.description.num_attributes, name);
            let given = find(self.request.attributes, self.request.num_attributes, name);
            let found = given.or(stated).ok_or_else(|| Error::invalid(format!("there is no attribute {name}")))?;
            if stated.is_none() || i64::from(found.kind) != kind {
                return Err(Error::invalid(format!("attribute {name} has kind {}, needed is {kind}", found.kind)));
            }
            Ok(found)
        }
    }
    pub fn int(&self, name: &str) -> Result<i64> {
        Ok(self.attribute(name, GRAFT_ATTRIBUTE_INT)?.int_value)
    }
    pub fn float(&self, name: &str) -> Result<f64> {
        Ok(self.attribute(name, GRAFT_ATTRIBUTE_FLOAT)?.float_value)
    }
    pub fn string(&self, name: &str) -> Result<String> {
        let a = self.attribute(name, GRAFT_ATTRIBUTE_STRING)?;
        if a.count == 0 {
            return Ok(String::new());
        }
        let bytes = unsafe { std::slice::from_raw_parts(a.data.cast::<u8>(), a.count as usize) };
        Ok(String::from_utf8_lossy(bytes).into_owned())
    }
    pub fn ints(&self, name: &str) -> Result<Vec<i64>> {
        let a = self.attribute(name, GRAFT_ATTRIBUTE_INTS)?;
        if a.count == 0 {
            return Ok(vec![]);
        }
        Ok(unsafe { std::slice::from_raw_parts(a.data.cast::<i64>(), a.count as usize) }.to_vec())
    }
    /// An input whose value is known already.
    pub fn constant(&self, input: u32) -> Option<Tensor<'_>> {
        if input >= self.request.num_constants || self.request.constants.is_null() {
            return None;
        }
        unsafe { (*self.request.constants.add(input as usize)).as_ref() }.map(Tensor)
    }
}

/// Types and shapes of inputs and outputs.
#[derive(Clone, Copy)]
pub struct Shapes<'a> {
    pub(crate) inputs: &'a [*const graft_tensor],
    pub(crate) outputs: &'a [*const graft_tensor],
    pub concurrency: i32,
}

fn at(list: &[*const graft_tensor], index: usize) -> Option<Tensor<'_>> {
    list.get(index).and_then(|t| unsafe { t.as_ref() }).map(Tensor)
}

impl<'a> Shapes<'a> {
    pub fn input(&self, index: usize) -> Option<Tensor<'a>> {
        at(self.inputs, index)
    }
    pub fn output(&self, index: usize) -> Option<Tensor<'a>> {
        at(self.outputs, index)
    }
}

/// Types and shapes of one node. Sizes below 0 are not known yet; equal ones below -1 are equal sizes.
pub struct Infer<'a> {
    pub(crate) inputs: &'a [*const graft_tensor],
    pub(crate) outputs: &'a [*mut graft_tensor],
}

impl<'a> Infer<'a> {
    pub fn input(&self, index: usize) -> Result<Tensor<'a>> {
        at(self.inputs, index).ok_or_else(|| Error::invalid(format!("input {index} is absent")))
    }
    pub fn has_input(&self, index: usize) -> bool {
        at(self.inputs, index).is_some()
    }
    /// Sets an output's type and shape; does nothing where the node has no such output.
    pub fn set(&mut self, index: usize, element: Type, shape: &[i64]) -> Result<()> {
        let Some(output) = self.outputs.get(index).and_then(|t| unsafe { t.as_mut() }) else { return Ok(()) };
        if shape.len() > GRAFT_MAX_RANK as usize {
            return Err(Error::invalid(format!("output {index} has rank {}", shape.len())));
        }
        output.dtype = element.c();
        output.ndim = shape.len() as i32;
        for (axis, size) in shape.iter().enumerate() {
            unsafe { *output.shape.add(axis) = *size };
        }
        Ok(())
    }
    pub fn set_like(&mut self, index: usize, input: usize) -> Result<()> {
        let like = self.input(input)?;
        let element = like.element_type().ok_or_else(|| Error::unsupported("an element type that the kit does not know"))?;
        self.set(index, element, like.shape())
    }
}

/// Everything that one run may use.
pub struct Run<'a> {
    pub(crate) context: &'a graft_run_context,
    pub(crate) inputs: &'a [*const graft_tensor],
    pub(crate) outputs: &'a [*mut graft_tensor],
}

struct Task<'a, F> {
    work: &'a F,
    panicked: std::sync::atomic::AtomicBool,
}

unsafe extern "C" fn call<F: Fn(u64) + Sync>(task: *mut c_void, index: u64) {
    let task = &*task.cast::<Task<F>>();
    if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| (task.work)(index))).is_err() {
        task.panicked.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

impl<'a> Run<'a> {
    pub fn input(&self, index: usize) -> Option<Tensor<'a>> {
        at(self.inputs, index)
    }
    pub fn output(&self, index: usize) -> Option<Tensor<'a>> {
        self.outputs.get(index).and_then(|t| unsafe { t.as_ref() }).map(Tensor)
    }
    /// The elements of an output, all of which must be written. Take it once: two views of one output may not live
    /// together.
    #[allow(clippy::mut_from_ref)]
    pub fn output_data<T: Element>(&self, index: usize) -> Result<&'a mut [T]> {
        let output = self.output(index).ok_or_else(|| Error::invalid(format!("output {index} is absent")))?;
        let view = output.data::<T>()?;
        Ok(unsafe { std::slice::from_raw_parts_mut(view.as_ptr().cast_mut(), view.len()) })
    }
    /// Scratch of as many bytes as `workspace` asked for, 64-byte aligned.
    #[allow(clippy::mut_from_ref)]
    pub fn workspace(&self) -> &'a mut [u8] {
        if self.context.workspace.is_null() {
            return &mut [];
        }
        unsafe { std::slice::from_raw_parts_mut(self.context.workspace.cast(), self.context.workspace_size as usize) }
    }
    /// Calls work(i) for i in 0..count on the host's threads, and returns when all are done.
    pub fn parallel<F: Fn(u64) + Sync>(&self, count: u64, work: F) -> Result<()> {
        let Some(parallel) = self.context.parallel_for.filter(|_| count > 1) else {
            (0..count).for_each(work);
            return Ok(());
        };
        let mut task = Task { work: &work, panicked: false.into() };
        let code = unsafe { parallel(self.context.parallel_context, count, Some(call::<F>), (&raw mut task).cast()) };
        if task.panicked.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Error::internal("a task panicked"));
        }
        if i64::from(code) != GRAFT_OK {
            return Err(Error { code, text: "the host's parallel_for failed".into() });
        }
        Ok(())
    }
    /// Calls work(i, part) for each part of `chunk` elements of a slice, as `parallel` does.
    pub fn parallel_chunks<T: Element, F: Fn(usize, &mut [T]) + Sync>(&self, all: &mut [T], chunk: usize, work: F) -> Result<()> {
        struct Parts<T>(*mut T);
        unsafe impl<T> Sync for Parts<T> {}
        let (parts, length) = (Parts(all.as_mut_ptr()), all.len());
        let parts = &parts;
        self.parallel(length.div_ceil(chunk) as u64, |i| {
            let first = i as usize * chunk;
            // Parts of one slice that do not overlap, each given to one task.
            work(i as usize, unsafe { std::slice::from_raw_parts_mut(parts.0.add(first), chunk.min(length - first)) });
        })
    }
}

/// Constants of a model, and where to put what is computed from them.
pub struct Fold<'a>(pub(crate) &'a graft_fold_request);

impl<'a> Fold<'a> {
    /// `name` of the entry under `operators` in plugin.yaml.
    pub fn operator(&self) -> &'a str {
        unsafe { CStr::from_ptr(self.0.operator_name) }.to_str().unwrap_or_default()
    }
    /// A captured constant: f64 or i64, row-major.
    pub fn constant(&self, name: &str) -> Result<Tensor<'a>> {
        unsafe {
            (0..self.0.num_constants as usize)
                .map(|i| &**self.0.constants.add(i))
                .find(|c| CStr::from_ptr(c.name).to_bytes() == name.as_bytes())
                .map(|c| Tensor(&*c.tensor))
                .ok_or_else(|| Error::invalid(format!("fold: no constant {name} was captured")))
        }
    }
    /// Hands one result over; the host copies it.
    pub fn emit(&self, name: &str, shape: &[i64], data: &[f64]) -> Result<()> {
        if shape.iter().product::<i64>() != data.len() as i64 {
            return Err(Error::internal(format!("fold: {name} has {} elements, needed are those of {shape:?}", data.len())));
        }
        let mut shape = shape.to_vec();
        let tensor = graft_tensor {
            data: data.as_ptr().cast_mut().cast(),
            device: graft_device { type_: GRAFT_DEVICE_CPU as i32, id: 0 },
            ndim: shape.len() as i32,
            dtype: Type::F64.c(),
            shape: shape.as_mut_ptr(),
            strides: null_mut(),
            byte_offset: 0,
        };
        let name = std::ffi::CString::new(name).map_err(|_| Error::internal("a name holds a zero"))?;
        let emit = self.0.emit.ok_or_else(|| Error::invalid("fold: the host takes nothing"))?;
        let code = unsafe { emit(self.0.emit_context, name.as_ptr(), &tensor) };
        if i64::from(code) != GRAFT_OK {
            return Err(Error { code, text: format!("fold: the host did not take {name:?}") });
        }
        Ok(())
    }
}
