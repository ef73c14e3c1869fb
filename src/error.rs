//! Everything that can go wrong. Every message names what it is about and says what to do.

use std::time::Duration;

use crate::Format;

/// What the crate refuses, before any GPU work: after an error no command was recorded and no gradient changed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A tensor's byte offset is not a multiple of 4.
    #[error(
        "tensor \"{tensor}\": byte offset {offset} is not a multiple of 4; start every tensor at a 32-bit word"
    )]
    Offset {
        /// Name of the tensor.
        tensor: String,
        /// Its offset in bytes.
        offset: u64,
    },
    /// A tensor ends beyond its buffer.
    #[error(
        "tensor \"{tensor}\": {len} {format} elements at byte {offset} end at byte {end}, but the buffer has \
         {size} bytes{}",
        odd_hint(*.format, *.len)
    )]
    BeyondBuffer {
        /// Name of the tensor.
        tensor: String,
        /// Its offset in bytes.
        offset: u64,
        /// Its length in elements.
        len: u64,
        /// Its format.
        format: Format,
        /// One past its last byte.
        end: u128,
        /// Size of the buffer in bytes.
        size: u64,
    },
    /// A buffer lacks a usage flag.
    #[error(
        "tensor \"{tensor}\": its buffer was created without BufferUsages::STORAGE; the kernels read and write it in place"
    )]
    MissingUsage {
        /// Name of the tensor.
        tensor: String,
    },
    /// Two tensors share bytes: a tied weight given twice would count twice in the norm and be scaled twice.
    #[error("tensors \"{first}\" and \"{second}\" overlap in one buffer; add a shared gradient once")]
    Overlap {
        /// Name of the tensor that starts first.
        first: String,
        /// Name of the other.
        second: String,
    },
    /// Two tensors have the same name.
    #[error("two tensors are named \"{tensor}\"; reports tell tensors apart by name, so each needs its own")]
    DuplicateName {
        /// The name.
        tensor: String,
    },
    /// A rebind gave another number of tensors.
    #[error("set \"{set}\" has {expected} tensors, but {given} slices were given; build a new set instead")]
    TensorCount {
        /// Name of the set.
        set: String,
        /// Tensors of the set.
        expected: usize,
        /// Slices given.
        given: usize,
    },
    /// A rebind gave another length or format.
    #[error(
        "tensor \"{tensor}\" was built as {expected_len} {expected_format} elements, but rebound as {len} {format}; \
         build a new set instead"
    )]
    Shape {
        /// Name of the tensor.
        tensor: String,
        /// Elements it was built with.
        expected_len: u64,
        /// Format it was built with.
        expected_format: Format,
        /// Elements given now.
        len: u64,
        /// Format given now.
        format: Format,
    },
    /// A limit leaves room for nothing.
    #[error(
        "PlanLimits::{limit} leaves room for nothing; raise it (window_bytes: to one window_align at least)"
    )]
    ZeroLimit {
        /// Field of [`PlanLimits`](crate::plan::PlanLimits).
        limit: &'static str,
    },
    /// The device was created with too small a limit.
    #[error("the device's {limit} is {has}, but gradclip needs {needed}; request a device with more")]
    DeviceLimit {
        /// Field of [`wgpu::Limits`].
        limit: &'static str,
        /// The least that works.
        needed: u64,
        /// What the device has.
        has: u64,
    },
    /// The set is too large for exact sums.
    #[error("the set has {elements} elements; one norm covers fewer than 2^39, so use several sets")]
    TooManyElements {
        /// Elements in all.
        elements: u64,
    },
    /// More tiles than 32 bits count.
    #[error("more than 2^32 - 1 tiles of {tile_words} words; raise PlanLimits::tile_words")]
    TooManyTiles {
        /// Words of a tile.
        tile_words: u32,
    },
    /// A buffer that the set needs for itself does not fit the device.
    #[error(
        "set \"{set}\" needs {bytes} bytes of {what}, but the device allows {limit} a buffer; raise the device's \
         limits or PlanLimits::tile_words, or use several sets"
    )]
    Scratch {
        /// Name of the set.
        set: String,
        /// Which buffer.
        what: &'static str,
        /// Bytes needed.
        bytes: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// `max_norm` is negative or NaN.
    #[error("max_norm {0} must be 0 or more; f32::INFINITY means no limit")]
    MaxNorm(f32),
    /// `eps` is negative, NaN or infinite.
    #[error("eps {0} must be 0 or more and finite")]
    Eps(f32),
    /// `clip_value` is negative or NaN.
    #[error("clip_value {0} must be 0 or more; f32::INFINITY means no limit")]
    ClipValue(f32),
    /// A threshold of the norm is not positive.
    #[error("skip_above {0} must be above 0; leave it away to skip no step for its norm")]
    SkipAbove(f32),
    /// A norm from elsewhere is negative, NaN or infinite.
    #[error("the given norm {0} must be 0 or more and finite; skip the step where a norm is not")]
    GivenNorm(f32),
    /// A coefficient from elsewhere is negative, NaN or infinite.
    #[error("the coefficient {0} must be 0 or more and finite")]
    Coefficient(f32),
    /// A divisor is not positive and finite.
    #[error("divisor {0} must be positive and finite; 1 divides by the loss scale alone")]
    Divisor(f32),
    /// A word of a buffer cannot be bound.
    #[error("the word at byte {offset} of a buffer cannot be read: {why}")]
    Word {
        /// Its offset in bytes.
        offset: u64,
        /// Why it cannot.
        why: String,
    },
    /// A step needs kernels that were not prepared.
    #[error(
        "set \"{set}\": {what} was not prepared; call GradSet::prepare with Prepare::{what} first, since recording compiles nothing"
    )]
    NotPrepared {
        /// Name of the set.
        set: String,
        /// The variant of [`Prepare`](crate::Prepare) that is missing.
        what: &'static str,
    },
    /// An open step was given up by name, or its set was begun anew.
    #[error("set \"{set}\": this step was given up; begin a new one")]
    GivenUp {
        /// Name of the set.
        set: String,
    },
    /// Two open sets share bytes.
    #[error(
        "tensor \"{tensor}\" of set \"{set}\" and tensor \"{other_tensor}\" of set \"{other_set}\" share bytes: they would be \
         unscaled twice; give each gradient to one set, or say GradSetBuilder::shares_buffers where they are passes over \
         one buffer"
    )]
    SharedBytes {
        /// Name of the set.
        set: String,
        /// Name of its tensor.
        tensor: String,
        /// Name of the other set.
        other_set: String,
        /// Name of the other tensor.
        other_tensor: String,
    },
    /// Two sets of one scaler have the same name.
    #[error(
        "two sets of this GradScaler are named \"{set}\"; its state keeps steps by name, so each needs its own"
    )]
    SameName {
        /// Name of both.
        set: String,
    },
    /// Sets cannot be stepped together.
    #[error("these sets cannot be stepped together: {why}")]
    Together {
        /// Why they cannot.
        why: String,
    },
    /// The device was lost: removed, reset, destroyed, or its driver gave up.
    #[error(
        "{what}: the device was lost; make a new device, Context and sets, and load the state that was saved last"
    )]
    DeviceLost {
        /// What was being done.
        what: String,
    },
    /// The loss scale is not positive and finite.
    #[error("loss scale {0} must be positive and finite; 1 means that the loss was not scaled")]
    LossScale(f32),
    /// A field of the scaler's configuration is outside its domain.
    #[error("{field} {value} must {must}")]
    Config {
        /// Field of [`ScalerConfig`](crate::ScalerConfig).
        field: &'static str,
        /// Its value.
        value: String,
        /// The domain.
        must: &'static str,
    },
    /// A saved state cannot be loaded.
    #[error("the scaler state cannot be loaded: {what}")]
    State {
        /// What is wrong with it.
        what: String,
    },
    /// A set has an open step already.
    #[error(
        "set \"{set}\" has an open step: its gradients are unscaled once per update; pass the open step to \
         GradScaler::update, or drop it, first"
    )]
    StepOpen {
        /// Name of the set.
        set: String,
    },
    /// A set has an open step under another scaler.
    #[error(
        "set \"{set}\" has a step under another GradScaler; an optimizer belongs to the scaler whose scale multiplied \
         its loss"
    )]
    OtherScaler {
        /// Name of the set.
        set: String,
    },
    /// A set and a scaler belong to different contexts.
    #[error("set \"{set}\" was built with another Context than this GradScaler; build both with one Context")]
    OtherContext {
        /// Name of the set.
        set: String,
    },
    /// An optimizer with an open step is missing from an update.
    #[error(
        "optimizer \"{set}\" has an open step: the loss scale stands still until every optimizer of the scaler was \
         recorded; pass its step to GradScaler::update, or drop it"
    )]
    LeftOut {
        /// Name of the set.
        set: String,
    },
    /// An update without steps.
    #[error(
        "GradScaler::update needs the recorded step of every optimizer; without one there is nothing to update from"
    )]
    NoSteps,
    /// Too many steps were skipped in a row.
    #[error(
        "{skipped} steps in a row were skipped; look in the reports for the tensors that stay infinite or NaN, or \
         overflow, then call GradScaler::resume to go on"
    )]
    TooManySkipped {
        /// Skipped steps in a row.
        skipped: u32,
    },
    /// The encoder of an update was dropped.
    #[error("the encoder of update {update} was dropped, so that update never ran and has no report")]
    Dropped {
        /// Number of the update.
        update: u64,
    },
    /// A change was asked for before anything was kept to compare with.
    #[error("delta norm \"{set}\": nothing was kept; call record_before, once for each record_after")]
    NothingKept {
        /// Name of the delta norm.
        set: String,
    },
    /// A ledger is damaged, foreign or of other gradients.
    #[error("the ledger cannot be used: {what}")]
    Ledger {
        /// What is wrong with it.
        what: String,
    },
    /// A sharded step was to be finished that was not measured.
    #[error(
        "set \"{set}\": there is no ledger of its gradients as they are now; record_ledger, submit and read_ledger come \
         before record_merged, with no other step and no rebind in between"
    )]
    NoLedger {
        /// Name of the set.
        set: String,
    },
    /// A sharded step cannot have this limit.
    #[error("set \"{set}\": {why}")]
    ShardLimit {
        /// Name of the set.
        set: String,
        /// Why it cannot.
        why: String,
    },
    /// The step that a report was asked for never ran.
    #[error(
        "set \"{set}\": no new step has run on the GPU; submit the encoder that recorded one, then read the report"
    )]
    NotRun {
        /// Name of the set.
        set: String,
    },
    /// The GPU did not finish in time.
    #[error(
        "{whose}: the GPU did not finish within {patience:?}; wait longer, or look for a kernel that hangs in what was submitted before"
    )]
    Timeout {
        /// Whose report: a set, `GradScaler` or the self-test.
        whose: String,
        /// How long was waited.
        patience: Duration,
    },
    /// wgpu refused something: out of memory, a buffer of another device, a destroyed buffer.
    #[error("{what}: {message}")]
    Wgpu {
        /// What was being done.
        what: String,
        /// wgpu's own words.
        message: String,
    },
}

fn odd_hint(format: Format, len: u64) -> &'static str {
    if format.size() == 2 && len % 2 == 1 { "; an odd 16-bit tensor needs its whole last word" } else { "" }
}
