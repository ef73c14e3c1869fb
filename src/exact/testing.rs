//! Random numbers for the tests of this module, the same ones on every run.

/// A linear congruential generator whose low, weak half is not handed out.
pub(crate) struct Lcg(u64);

impl Lcg {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next_u32(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) << 32 | u64::from(self.next_u32())
    }

    /// A number under `bound`, which must not be 0. Its slight bias is of no matter here.
    pub fn below(&mut self, bound: u32) -> u32 {
        self.next_u32() % bound
    }
}
