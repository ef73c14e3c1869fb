//! Everything that one run measured, as its JSON file has it.

use serde::{Deserialize, Serialize};

use crate::numbers::NumbersRow;
use crate::pytorch::Version;
use crate::row::Row;
use crate::sets::SetRow;
use crate::variant::Variant;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// When the run began, UTC.
    pub date: String,
    /// Adapter, driver, backend, limits, features, crate version, target.
    pub environment: serde_json::Value,
    /// How the sets were cut, as measured before.
    pub cut: Cut,
    /// The kernels that the limit was measured with: the read pass, the read-write pass.
    pub limit_kernels: [String; 2],
    pub pytorch: Vec<Version>,
    pub rounds: u64,
    /// The models.
    pub results: Vec<Row>,
    /// One tensor of growing length, and growing numbers of tensors of 1000, in f32.
    pub growth: Vec<Row>,
    pub sets: Vec<SetRow>,
    /// Since 0.2.
    #[serde(default)]
    pub numbers: Vec<NumbersRow>,
}

/// `PlanLimits` of the context.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cut {
    pub tile_words: u32,
    pub windows_per_dispatch: u32,
    pub lone_window_tiles: u64,
}

impl Record {
    /// The row of another variant in the same place.
    pub fn beside(&self, row: &Row, variant: Variant) -> Option<&Row> {
        self.results.iter().chain(&self.growth).find(|other| other.variant == variant && other.beside(row))
    }

    /// The least that memory allows for the row's job over the row's time: 1 at the limit.
    pub fn share_of_limit(&self, row: &Row) -> Option<f64> {
        let read = self.beside(row, Variant::LimitRead)?;
        if row.variant.is_limit() {
            return None;
        }
        if row.variant.only_reads() {
            return Some(read.ratio(row));
        }
        let write = self.beside(row, Variant::LimitReadWrite)?;
        Some(read.ratio(row) + write.ratio(row))
    }

    /// The row's time over that of another variant in the same place.
    pub fn ratio_to(&self, row: &Row, variant: Variant) -> Option<f64> {
        let other = self.beside(row, variant)?;
        (!row.variant.only_reads() && !row.variant.is_limit() && row.variant != variant)
            .then(|| row.ratio(other))
    }
}
