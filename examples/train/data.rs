//! The digits, and a generator that deals them out the same way everywhere.

const DIGITS: &str = include_str!("../../tests/data/digits.csv");
pub const PIXELS: usize = 64;
pub const CLASSES: usize = 10;

/// Knuth's MMIX generator; the upper half of its state is used.
pub struct Lcg(u64);

impl Lcg {
    pub fn new(seed: u64) -> Self {
        let mut lcg = Self(seed);
        // Small seeds differ in low bits only.
        (0..8).for_each(|_| _ = lcg.next());
        lcg
    }

    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// Below `bound`.
    fn below(&mut self, bound: usize) -> usize {
        ((u64::from(self.next()) * bound as u64) >> 32) as usize
    }

    /// From -1 to 1.
    pub fn symmetric(&mut self) -> f64 {
        f64::from(self.next()) / 2f64.powi(31) - 1.0
    }

    fn shuffle(&mut self, order: &mut [u32]) {
        for i in (1..order.len()).rev() {
            order.swap(i, self.below(i + 1));
        }
    }
}

/// Images with pixels from 0 to 1, one after the other, and their labels.
#[derive(Default)]
pub struct Digits {
    pub pixels: Vec<f32>,
    pub labels: Vec<u32>,
}

impl Digits {
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    pub fn image(&self, row: usize) -> &[f32] {
        &self.pixels[row * PIXELS..(row + 1) * PIXELS]
    }

    fn push(&mut self, image: &[f32], label: u32) {
        self.pixels.extend_from_slice(image);
        self.labels.push(label);
    }
}

pub struct Split {
    pub train: Digits,
    pub test: Digits,
}

impl Split {
    /// Every fifth row is for the test.
    pub fn new() -> Result<Self, String> {
        let all = parse(DIGITS)?;
        let mut split = Self { train: Digits::default(), test: Digits::default() };
        for row in 0..all.len() {
            let part = if row % 5 == 4 { &mut split.test } else { &mut split.train };
            part.push(all.image(row), all.labels[row]);
        }
        Ok(split)
    }
}

fn parse(csv: &str) -> Result<Digits, String> {
    let mut digits = Digits::default();
    for (i, line) in csv.lines().enumerate() {
        let fields: Result<Vec<u32>, _> = line.split(',').map(str::parse).collect();
        match fields.as_deref() {
            Ok([pixels @ .., label]) if pixels.len() == PIXELS && (*label as usize) < CLASSES => {
                let image: Vec<f32> = pixels.iter().map(|&p| p as f32 / 16.0).collect();
                digits.push(&image, *label);
            }
            _ => return Err(format!("digits.csv, line {}: not 64 pixels and a label", i + 1)),
        }
    }
    Ok(digits)
}

/// Deals out the rows, in a new order every epoch. What does not fill a batch at its end waits for the next.
pub struct Batches {
    order: Vec<u32>,
    at: usize,
    lcg: Lcg,
}

impl Batches {
    pub fn new(rows: usize, seed: u64) -> Self {
        Self { order: (0..rows as u32).collect(), at: rows, lcg: Lcg::new(seed) }
    }

    pub fn next(&mut self, rows: usize) -> &[u32] {
        if self.at + rows > self.order.len() {
            self.lcg.shuffle(&mut self.order);
            self.at = 0;
        }
        self.at += rows;
        &self.order[self.at - rows..self.at]
    }
}
