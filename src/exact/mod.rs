//! The exact sum: arithmetic, ledgers of digits and what follows from them, in integers. README.md says why it is exact.

pub mod arithmetic;
pub(crate) mod element;
pub mod norm_finish;
pub mod norm_partials;
#[cfg(test)]
pub(crate) mod testing;
