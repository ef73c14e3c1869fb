//! Whether tensors can lie where they are said to.

use std::collections::{HashMap, HashSet};

use super::PlanTensor;
use crate::slice::Tensor;
use crate::{Error, Role, TensorSlice};

/// Checks every slice and numbers the buffers in order of appearance.
#[allow(clippy::mutable_key_type, reason = "wgpu compares and hashes a buffer by its identity")]
pub(crate) fn lay_out(tensors: &[Tensor], slices: &[TensorSlice<'_>]) -> Result<Vec<PlanTensor>, Error> {
    let mut numbers: HashMap<&wgpu::Buffer, usize> = HashMap::new();
    let mut layout = Vec::with_capacity(slices.len());
    for (tensor, slice) in tensors.iter().zip(slices) {
        check_slice(&tensor.name, slice)?;
        let next = numbers.len();
        let buffer = *numbers.entry(slice.buffer).or_insert(next);
        layout.push(PlanTensor {
            role: tensor.role,
            ..PlanTensor::new(buffer, slice.offset, slice.len, slice.format)
        });
    }
    let mut order: Vec<usize> = (0..layout.len()).filter(|&t| layout[t].len > 0).collect();
    order.sort_by_key(|&t| (layout[t].buffer, layout[t].offset));
    for pair in order.windows(2) {
        let (a, b) = (&layout[pair[0]], &layout[pair[1]]);
        if a.buffer == b.buffer && b.offset < a.end() {
            return Err(Error::Overlap {
                first: tensors[pair[0]].name.clone(),
                second: tensors[pair[1]].name.clone(),
            });
        }
    }
    Ok(layout)
}

/// Checks names and places of tensors that are no set of gradients.
pub(crate) fn check_set(names: &[String], slices: &[TensorSlice<'_>]) -> Result<(), Error> {
    check_names(names.iter().map(String::as_str))?;
    let named = names.iter().zip(slices);
    let tensors: Vec<Tensor> = named
        .map(|(name, s)| Tensor { name: name.clone(), len: s.len, format: s.format, role: Role::default() })
        .collect();
    lay_out(&tensors, slices).map(drop)
}

pub(crate) fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<(), Error> {
    let mut seen = HashSet::new();
    for name in names {
        if !seen.insert(name) {
            return Err(Error::DuplicateName { tensor: name.into() });
        }
    }
    Ok(())
}

/// Checks where one tensor lies.
fn check_slice(tensor: &str, slice: &TensorSlice<'_>) -> Result<(), Error> {
    let name = || tensor.to_owned();
    if !slice.offset.is_multiple_of(4) {
        return Err(Error::Offset { tensor: name(), offset: slice.offset });
    }
    let end = u128::from(slice.offset) + 4 * u128::from(slice.format.words(slice.len));
    if end > u128::from(slice.buffer.size()) {
        return Err(Error::BeyondBuffer {
            tensor: name(),
            offset: slice.offset,
            len: slice.len,
            format: slice.format,
            end,
            size: slice.buffer.size(),
        });
    }
    if !slice.buffer.usage().contains(wgpu::BufferUsages::STORAGE) {
        return Err(Error::MissingUsage { tensor: name() });
    }
    Ok(())
}
