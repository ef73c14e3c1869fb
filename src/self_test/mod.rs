//! Whether the kernels are exact on a device: cases with known answers, in one submission.

mod cases;
mod compare;
mod run;

use std::fmt;

pub use compare::Difference;

use crate::gpu::readback::read_recorded;
use crate::{Context, Error};
use run::{Findings, Run, ScaleRun, StepRun, Way};

/// What [`Context::self_test`] found. Its text is a summary, and a line for each case that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[must_use = "a failed self-test is no error; ask holds()"]
#[non_exhaustive]
pub struct SelfTest {
    /// Every case, in the order in which they ran.
    pub cases: Vec<SelfTestCase>,
}

/// One case of a [`SelfTest`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SelfTestCase {
    /// What it is about: `step: ...` or `scale: ...`.
    pub name: String,
    /// Where the GPU first differs from the exact answer; `None` if every bit is right.
    pub difference: Option<Difference>,
}

impl SelfTest {
    /// Whether every case held on every bit.
    #[must_use]
    pub fn holds(&self) -> bool {
        !self.cases.is_empty() && self.failed().next().is_none()
    }

    /// The cases that did not hold.
    pub fn failed(&self) -> impl Iterator<Item = &SelfTestCase> {
        self.cases.iter().filter(|case| case.difference.is_some())
    }
}

impl fmt::Display for SelfTest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (all, failed) = (self.cases.len(), self.failed().count());
        write!(f, "gradclip self-test: {} of {all} cases hold", all - failed)?;
        for case in self.failed() {
            write!(f, "\n  {case}")?;
        }
        Ok(())
    }
}

impl fmt::Display for SelfTestCase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.difference {
            None => write!(f, "{}: holds", self.name),
            Some(difference) => write!(f, "{}: {difference}", self.name),
        }
    }
}

impl Context {
    /// Runs steps and sequences of the loss scale whose exact answers are built in, and compares every bit that the
    /// device returns: the verdict, the counts, each element and the bytes around the tensors. For an engine that meets a
    /// driver which no one has tried: call it once after [`Context::new`], and if it does not
    /// [hold](SelfTest::holds), train elsewhere and report its text with [`Context::environment`]'s.
    ///
    /// ```
    /// use gradclip::{Context, wgpu};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    /// # let adapter = pollster::block_on(instance.request_adapter(&Default::default()))?;
    /// # let (device, queue) = pollster::block_on(adapter.request_device(&Default::default()))?;
    /// let gpu = Context::new(&device, &queue)?;
    /// let test = gpu.self_test()?;
    /// if !test.holds() {
    ///     return Err(format!("{test}\n{}", gpu.environment()).into());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// It uses buffers of its own, all gone when it returns, in one submission with one readback. What the caller has
    /// recorded, submitted or bound stays as it is; the wait includes the work that was submitted before. It compiles the
    /// kernels for one buffer a dispatch in each format, word by word and in quads, `norm_finish` and `scale_update`, and
    /// keeps them, since sets need them too. The kernels for several buffers a dispatch, for L1 norms, for limits of each
    /// tensor or element, for parts of sharded steps, for the norms of reports and of [`DeltaNorm`](crate::DeltaNorm) are not among the cases.
    ///
    /// Nearly all of its time is the driver's compiler, and a step in the same three formats would wait for it as well.
    /// On two cores, lavapipe (Vulkan) and llvmpipe (GL) run the cases in 0.12 to 0.25 s; before that they compile for 3 s
    /// the first time ever, and for 0.2 to 0.4 s while Mesa's cache on disk knows the kernels. SwiftShader, which has no
    /// such cache, runs them in 0.7 s and compiles for 3 s. Debug builds take as long.
    ///
    /// # Errors
    /// [`Error::Timeout`] if the GPU is not done after a minute; [`Error::Wgpu`] if wgpu refuses a kernel or a buffer, or
    /// the device was lost. A wrong bit is no error: it is in the [`SelfTest`].
    pub fn self_test(&self) -> Result<SelfTest, Error> {
        let cases = match cases::built_in() {
            Ok(cases) => cases,
            Err(line) => return Ok(unreadable(line)),
        };
        let findings = Findings::new(self)?;
        let mut runs: Vec<Box<dyn Run + '_>> = Vec::new();
        for case in &cases.steps {
            for way in Way::ALL.into_iter().filter(|way| way.suits(case)) {
                runs.push(Box::new(StepRun::new(self, case, way)?));
            }
        }
        for case in &cases.scales {
            runs.push(Box::new(ScaleRun::new(self, case, &findings)?));
        }
        let size = runs.iter().map(|run| run.bytes()).sum();
        let bytes = read_recorded(self, "self-test", size, |encoder, staging| {
            let mut at = 0;
            for run in &runs {
                run.record(encoder, staging, at)?;
                at += run.bytes();
            }
            Ok(())
        })?;
        let mut rest = &bytes[..];
        let judged = runs.iter().map(|run| {
            let (own, others) = rest.split_at(run.bytes() as usize);
            rest = others;
            SelfTestCase { name: run.name(), difference: run.difference(own) }
        });
        Ok(SelfTest { cases: judged.collect() })
    }
}

/// Cannot happen while the unit tests hold; then it is a failed case, not a panic in an engine.
fn unreadable(line: String) -> SelfTest {
    let difference = Difference::new("the built-in cases", "a line that can be read", line);
    SelfTest { cases: vec![SelfTestCase { name: "cases.txt".into(), difference: Some(difference) }] }
}
