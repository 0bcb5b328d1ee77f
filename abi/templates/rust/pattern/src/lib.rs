//! Mish in one pass over memory: y = x tanh(log(1 + exp(x))) (Misra, 2019).
//!
//! With e = exp(x) that is x n / (n + 2), n = e (e + 2): one exponential in place of three functions.

use graft_kit::{Create, Description, Infer, Operator, Result, Run, Type};

/// exp(x) for x from -80 to 40 or so, to f32's precision: 2^k by the exponent's bits, times a polynomial.
#[inline(always)]
fn exponential(x: f32) -> f32 {
    let scaled = x.max(-80.0) * std::f32::consts::LOG2_E;
    let shifted = scaled + 12582912.0; // 1.5 * 2^23: rounds to a whole number
    let r = (scaled - (shifted - 12582912.0)) * std::f32::consts::LN_2;
    let mut p = 1.0f32 / 720.0;
    for c in [1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
        p = p * r + c;
    }
    let k = shifted.to_bits().wrapping_sub(0x4b40_0000 - 127);
    p * f32::from_bits(k << 23)
}

#[inline(always)]
fn mish(x: &[f32], y: &mut [f32]) {
    for (x, y) in x.iter().zip(y) {
        let e = exponential(x.min(20.0)); // from there on n / (n + 2) is 1
        let n = e * (e + 2.0);
        *y = x * (n / (n + 2.0));
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn mish_avx2(x: &[f32], y: &mut [f32]) {
    mish(x, y);
}

fn mish_best(x: &[f32], y: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        return unsafe { mish_avx2(x, y) };
    }
    mish(x, y);
}

struct MyPlugin;

impl Operator for MyPlugin {
    fn describe() -> Description {
        Description::new("MyPlugin", "x tanh(softplus(x))").input("x", &[Type::F32]).output("y", &[Type::F32])
    }
    fn create(_: &Create) -> Result<Self> {
        Ok(MyPlugin)
    }
    fn infer(&self, context: &mut Infer) -> Result<()> {
        context.set_like(0, 0)
    }
    fn run(&self, context: &Run) -> Result<()> {
        const CHUNK: usize = 16384;
        let x = context.input(0).expect("the input is not optional").data::<f32>()?;
        let y = context.output_data::<f32>(0)?;
        context.parallel_chunks(y, CHUNK, |i, part| mish_best(&x[i * CHUNK..i * CHUNK + part.len()], part))
    }
}

graft_kit::plugin!(MyPlugin);
