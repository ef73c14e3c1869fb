//! Which layouts can be written in place.

/// Whether the elements fill a block of memory, each in a place of its own, in whatever order.
pub fn is_dense(shape: &[usize], strides: &[usize]) -> bool {
    if shape.contains(&0) {
        return true;
    }
    let mut axes: Vec<_> = strides.iter().zip(shape).filter(|&(_, &len)| len > 1).collect();
    axes.sort();
    let mut block = 1;
    axes.iter().all(|&(&stride, &len)| {
        let next = stride == block;
        block *= len;
        next
    })
}

#[cfg(test)]
mod tests {
    use super::is_dense;

    #[test]
    fn dense() {
        for (shape, strides) in [
            (vec![], vec![]),
            (vec![5], vec![1]),
            (vec![2, 3, 4], vec![12, 4, 1]),
            (vec![4, 2, 3], vec![1, 12, 4]),
            (vec![1, 3], vec![99, 1]),
            (vec![1], vec![0]),
            (vec![0, 3], vec![0, 7]),
        ] {
            assert!(is_dense(&shape, &strides), "{shape:?} {strides:?}");
        }
        for (shape, strides) in [
            (vec![5], vec![0]),
            (vec![5], vec![2]),
            (vec![2, 3], vec![4, 1]),
            (vec![2, 3], vec![0, 1]),
            (vec![2, 2], vec![1, 1]),
        ] {
            assert!(!is_dense(&shape, &strides), "{shape:?} {strides:?}");
        }
    }
}
