//! The kit for plugins in Rust: an operator is a type with the trait [`Operator`], and [`plugin!`] makes the library
//! of one or more: the C table, the ELF note, and ONNX Runtime's custom operators. Nothing but the standard library
//! is needed.
//!
//! ```ignore
//! graft_kit::plugin!(MyOperator, AnotherOperator);
//! graft_kit::plugin!(fold = my_fold; MyOperator);
//! ```
//!
//! The crate of the plugin is called as the plugin is, is a `cdylib`, and has GRAFT_PLUGIN_NOTE, GRAFT_PLUGIN_NAME,
//! GRAFT_PLUGIN_VERSION and GRAFT_PLUGIN_SUMMARY in its build's environment, as the template's build.rs sets them.

pub mod abi;
mod adapter;
mod context;
mod describe;
mod kernel;
pub mod ort;

pub use context::{Create, Element, Fold, Infer, Run, Shapes, Tensor};
pub use describe::{Description, Type};
pub use kernel::{entry, initialise, table, Entry, Operator, Plugin};

/// Why a function fails: a GRAFT_* code and a text, lower case: what was found, what is needed.
#[derive(Debug)]
pub struct Error {
    pub code: i32,
    pub text: String,
}

pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn new(code: i64, text: impl Into<String>) -> Error {
        Error { code: code as i32, text: text.into() }
    }
    /// The request contradicts what the operator accepts.
    pub fn invalid(text: impl Into<String>) -> Error {
        Error::new(abi::GRAFT_ERROR_INVALID_ARGUMENT, text)
    }
    /// A legal request that this build does not support.
    pub fn unsupported(text: impl Into<String>) -> Error {
        Error::new(abi::GRAFT_ERROR_UNSUPPORTED, text)
    }
    /// Of a fold: these constants do not qualify, and the model is left unchanged.
    pub fn refused(text: impl Into<String>) -> Error {
        Error::new(abi::GRAFT_REFUSED, text)
    }
    fn internal(text: impl Into<String>) -> Error {
        Error::new(abi::GRAFT_ERROR_INTERNAL, text)
    }
}

/// Called by [`plugin!`]: what RegisterCustomOps does.
///
/// # Safety
/// The pointers are those that ONNX Runtime passes.
pub unsafe fn register(options: *mut ort::OrtSessionOptions, base: *const ort::OrtApiBase) -> *mut ort::OrtStatus {
    adapter::register(options, base)
}

/// Makes the library of operators, which may be none beside a fold.
#[macro_export]
macro_rules! plugin {
    (fold = $fold:expr $(; $($operator:ty),*)?) => { $crate::plugin!(@ Some($fold); $($($operator),*)?); };
    (@ $fold:expr; $($operator:ty),*) => {
        fn graft_initialise() {
            $crate::initialise(|| $crate::Plugin {
                name: env!("GRAFT_PLUGIN_NAME"),
                version: env!("GRAFT_PLUGIN_VERSION"),
                summary: env!("GRAFT_PLUGIN_SUMMARY"),
                entries: vec![$($crate::entry::<$operator>()),*],
                fold: $fold,
            });
        }

        #[no_mangle]
        pub extern "C" fn graft_plugin_v1() -> *const $crate::abi::graft_plugin {
            graft_initialise();
            $crate::table()
        }

        #[no_mangle]
        pub unsafe extern "C" fn RegisterCustomOps(
            options: *mut $crate::ort::OrtSessionOptions, base: *const $crate::ort::OrtApiBase,
        ) -> *mut $crate::ort::OrtStatus {
            graft_initialise();
            $crate::register(options, base)
        }

        // What can be read without running the library. GRAFT_PLUGIN_NOTE has \n as two characters, for the assembler.
        ::std::arch::global_asm!(
            ".pushsection .note.graft,\"a\",%note",
            ".balign 4",
            ".long 6",
            ".long 7772f-7771f",
            ".long 1",
            ".asciz \"graft\"",
            ".balign 4",
            concat!("7771: .ascii \"", env!("GRAFT_PLUGIN_NOTE"), "\""),
            "7772:",
            ".balign 4",
            ".popsection",
        );
    };
    ($($operator:ty),+ $(,)?) => { $crate::plugin!(@ None; $($operator),+); };
}
