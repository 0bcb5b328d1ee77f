//! Two matmuls with constant matrices, one after the other with nothing between, are one with their product. There is
//! no operator here: the work is done in `fold`, once, when a session is made.

use graft_kit::{Error, Fold, Result};

/// `first` [k, m] and `second` [m, n] come as f64; what is emitted gets the type of the graph.
fn fold(context: &Fold) -> Result<()> {
    let (first, second) = (context.constant("first")?, context.constant("second")?);
    let (&[k, m], &[rows, n]) = (first.shape(), second.shape()) else {
        return Err(Error::refused("the constants are no matrices"));
    };
    let (Ok(a), Ok(b)) = (first.data::<f64>(), second.data::<f64>()) else {
        return Err(Error::refused("the matrices are not real"));
    };
    if rows != m {
        return Err(Error::refused("the matrices do not fit each other"));
    }
    if k as f64 * n as f64 >= m as f64 * (k + n) as f64 {
        return Err(Error::refused(format!("the product of {k} x {m} and {m} x {n} is no smaller")));
    }
    let (m, n) = (m as usize, n as usize);
    let mut product = vec![0.0; k as usize * n];
    for (row, a) in product.chunks_mut(n).zip(a.chunks(m)) {
        for (a, b) in a.iter().zip(b.chunks(n)) {
            for (y, b) in row.iter_mut().zip(b) {
                *y += a * b;
            }
        }
    }
    context.emit("product", &[k, n as i64], &product)
}

graft_kit::plugin!(fold = fold);
