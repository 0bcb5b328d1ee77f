//! Attention of few queries over many keys, as in a step of a decoder: keys and values are read once, as stored, with
//! a running softmax (Milakov and Gimelshein, 2018).

use graft_kit::{Create, Description, Error, Infer, Operator, Result, Run, Tensor, Type};

/// Sums in 16 lanes, which the compiler turns into vectors without reordering anything.
#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; 16];
    let (a_parts, b_parts) = (a.chunks_exact(16), b.chunks_exact(16));
    let rest: f32 = a_parts.remainder().iter().zip(b_parts.remainder()).map(|(a, b)| a * b).sum();
    for (a, b) in a_parts.zip(b_parts) {
        for l in 0..16 {
            lanes[l] += a[l] * b[l];
        }
    }
    lanes.iter().sum::<f32>() + rest
}

/// One head's rows in a tensor [batch, heads, positions, size].
struct Rows<'a> {
    data: &'a [f32],
    position: usize,
    feature: usize,
    size: usize,
}

impl<'a> Rows<'a> {
    fn of(t: &Tensor<'a>, batch: usize, head: usize) -> Result<Rows<'a>> {
        let first = batch * t.stride(0) as usize + head * t.stride(1) as usize;
        let data = t.data::<f32>()?;
        Ok(Rows { data: data.get(first..).unwrap_or(&[]), position: t.stride(2) as usize, feature: t.stride(3) as usize, size: t.shape()[3] as usize })
    }
    /// A row whose features lie side by side, copied where they do not.
    #[inline(always)]
    fn row<'b>(&'b self, i: usize, room: &'b mut Vec<f32>) -> &'b [f32] {
        let first = i * self.position;
        if self.feature == 1 {
            return &self.data[first..first + self.size];
        }
        room.clear();
        room.extend((0..self.size).map(|f| self.data[first + f * self.feature]));
        room
    }
}

/// One query: reads keys 0..keys and writes the output.
#[inline(always)]
fn attend(query: &[f32], scale: f32, key: &Rows, value: &Rows, keys: usize, output: &mut [f32]) {
    const BLOCK: usize = 64;
    let (mut room, mut weights) = (vec![], [0f32; BLOCK]);
    let (mut highest, mut total) = (f32::NEG_INFINITY, 0f32);
    output.fill(0.0);
    for begin in (0..keys).step_by(BLOCK) {
        let count = BLOCK.min(keys - begin);
        let mut most = highest;
        for (j, w) in weights[..count].iter_mut().enumerate() {
            *w = scale * dot(query, key.row(begin + j, &mut room));
            most = most.max(*w);
        }
        let keep = (highest - most).exp(); // 0 at first
        highest = most;
        total *= keep;
        output.iter_mut().for_each(|x| *x *= keep);
        for (j, w) in weights[..count].iter().enumerate() {
            let weight = (w - highest).exp();
            total += weight;
            for (o, v) in output.iter_mut().zip(value.row(begin + j, &mut room)) {
                *o += weight * v;
            }
        }
    }
    if keys > 0 {
        output.iter_mut().for_each(|x| *x /= total);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn attend_avx2(query: &[f32], scale: f32, key: &Rows, value: &Rows, keys: usize, output: &mut [f32]) {
    attend(query, scale, key, value, keys, output);
}

fn attend_best(query: &[f32], scale: f32, key: &Rows, value: &Rows, keys: usize, output: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        return unsafe { attend_avx2(query, scale, key, value, keys, output) };
    }
    attend(query, scale, key, value, keys, output);
}

/// What the operator describes is what it can do: a host gives it no block that needs more. This one takes grouped
/// heads, whose number the tensors say too, and hides later keys; see kit/graft/attention.h for the other names.
struct MyPlugin {
    scale: f32,
    causal: bool,
}

impl Operator for MyPlugin {
    fn describe() -> Description {
        Description::new("MyPlugin", "attention of few queries over many keys")
            .strided_input("query", &[Type::F32])
            .strided_input("key", &[Type::F32])
            .strided_input("value", &[Type::F32])
            .output("output", &[Type::F32])
            .float("scale", 0.0)
            .int("kv_num_heads", 0)
            .int("is_causal", 0)
    }
    fn create(request: &Create) -> Result<Self> {
        Ok(MyPlugin { scale: request.float("scale")? as f32, causal: request.int("is_causal")? != 0 })
    }
    fn infer(&self, context: &mut Infer) -> Result<()> {
        let (query, key, value) = (context.input(0)?.shape(), context.input(1)?.shape(), context.input(2)?.shape());
        let (&[batch, heads, queries, size], &[_, kv_heads, keys, key_size], &[_, value_heads, values, value_size]) = (query, key, value) else {
            return Err(Error::invalid("query, key and value have 4 axes: batch, heads, positions, size"));
        };
        let differ = |a: i64, b: i64| a >= 0 && b >= 0 && a != b;
        let grouped = heads >= 0 && kv_heads >= 0 && (kv_heads == 0 || heads % kv_heads != 0) && heads != 0;
        let batches = differ(batch, key[0]) || differ(batch, value[0]);
        if batches || differ(size, key_size) || differ(keys, values) || differ(kv_heads, value_heads) || grouped {
            return Err(Error::invalid(format!("query {query:?}, key {key:?} and value {value:?} do not fit each other")));
        }
        context.set(0, Type::F32, &[batch, heads, queries, value_size])
    }
    fn run(&self, context: &Run) -> Result<()> {
        let input = |i| context.input(i).ok_or_else(|| Error::invalid("an input is absent"));
        let (query, key, value) = (input(0)?, input(1)?, input(2)?);
        let axis = |t: &Tensor, i: usize| t.shape()[i] as usize;
        let (heads, queries, kv_heads, keys) = (axis(&query, 1), axis(&query, 2), axis(&key, 1), axis(&key, 2));
        let scale = if self.scale != 0.0 { self.scale } else { 1.0 / (query.shape()[3] as f32).sqrt() };
        let output = context.output_data::<f32>(0)?;
        let size = axis(&value, 3);
        if output.is_empty() {
            return Ok(());
        }
        context.parallel_chunks(output, size, |row, out| {
            let (batch, head, i) = (row / queries / heads, row / queries % heads, row % queries);
            let kv_head = head * kv_heads / heads;
            let rows = (Rows::of(&query, batch, head), Rows::of(&key, batch, kv_head), Rows::of(&value, batch, kv_head));
            let (Ok(q), Ok(k), Ok(v)) = rows else { unreachable!("the kit has checked the types") };
            let seen = if self.causal { keys.min(i + 1) } else { keys };
            attend_best(q.row(i, &mut vec![]), scale, &k, &v, seen, out);
        })
    }
}

graft_kit::plugin!(MyPlugin);
