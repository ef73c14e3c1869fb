//! What can be known of the kernels from their text alone: they compile for every backend, their structs equal the Rust
//! twins, and they keep the rules that make results exact on hardware that no test has run on.

mod barriers;
mod exported;
mod fence;
mod flow;
mod layout;
mod operands;
mod rules;
mod translate;

use gradclip::plan::{self, Access};
use gradclip::{Format, Kernel};
use naga::valid::{Capabilities, ModuleInfo, ValidationFlags, Validator};

/// A parsed and validated shader.
struct Shader {
    name: String,
    source: String,
    module: naga::Module,
    info: ModuleInfo,
}

impl Shader {
    /// Without any capability, so with nothing beyond WebGPU's core.
    fn new(name: &str, source: &str) -> Self {
        Self::with(name, source, Capabilities::empty())
    }

    fn with(name: &str, source: &str, capabilities: Capabilities) -> Self {
        let module = naga::front::wgsl::parse_str(source)
            .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(source)));
        let info = Validator::new(ValidationFlags::all(), capabilities)
            .validate(&module)
            .unwrap_or_else(|e| panic!("{name}: {}", e.emit_to_string(source)));
        Self { name: name.into(), source: source.into(), module, info }
    }

    fn kernel(kernel: Kernel) -> Self {
        Self::new(&format!("{kernel:?}"), &kernel.wgsl())
    }

    /// The text that an expression or statement came from.
    fn text(&self, span: naga::Span) -> &str {
        span.to_range().and_then(|range| self.source.get(range)).unwrap_or("?")
    }

    /// Whether it is one of these kernels, by the names of `Kernel`'s variants.
    fn is_any(&self, variants: &[&str]) -> bool {
        variants.contains(&self.name.split('(').next().unwrap_or_default())
    }

    fn find_type(&self, name: &str) -> Option<&naga::Type> {
        self.module.types.iter().map(|(_, ty)| ty).find(|ty| ty.name.as_deref() == Some(name))
    }

    fn type_named(&self, name: &str) -> &naga::Type {
        self.find_type(name).unwrap_or_else(|| panic!("{}: no struct {name}", self.name))
    }
}

/// Every kernel that a set, a scaler or a plan can ask for.
fn kernels() -> Vec<Kernel> {
    let mut all = vec![
        Kernel::NormFinish,
        Kernel::ShardLedger,
        Kernel::NormMerged,
        Kernel::NormJoined,
        Kernel::Agree,
        Kernel::Gather,
        Kernel::LostClear,
        Kernel::TensorNorms,
        Kernel::TensorFactors,
        Kernel::ScaleUpdate,
    ];
    for format in Format::ALL {
        all.push(Kernel::DeltaNorm(format));
        for access in Access::ALL {
            for windows in 1..=plan::MAX_WINDOWS {
                all.extend([
                    Kernel::NormPartials(format, access, windows),
                    Kernel::L1Partials(format, access, windows),
                    Kernel::Apply(format, access, windows),
                    Kernel::ApplyEach(format, access, windows),
                    Kernel::ApplyCounted(format, access, windows),
                    Kernel::ApplyEachCounted(format, access, windows),
                ]);
            }
        }
    }
    all
}

/// Every kernel, parsed once for all tests.
fn shaders() -> &'static [Shader] {
    static SHADERS: std::sync::OnceLock<Vec<Shader>> = std::sync::OnceLock::new();
    SHADERS.get_or_init(|| kernels().into_iter().map(Shader::kernel).collect())
}

/// A snippet around `body`, for the tests of the checks themselves.
fn snippet(items: &str, body: &str) -> Shader {
    let source = format!(
        "struct U {{ zero: u32, one: f32 }}
         @group(0) @binding(0) var<storage, read_write> data: array<f32>;
         @group(0) @binding(1) var<storage, read> words: array<u32>;
         @group(0) @binding(2) var<uniform> u: U;
         @group(0) @binding(3) var<storage, read_write> out_words: array<u32>;
         @group(0) @binding(4) var<storage, read_write> res: array<f32>;
         var<private> kept: f32;
         var<workgroup> shared_words: array<u32, 64>;
         var<workgroup> shared_atomic: atomic<u32>;
         {items}
         @compute @workgroup_size(64)
         fn main(
             @builtin(local_invocation_index) lane: u32,
             @builtin(workgroup_id) group: vec3<u32>,
         ) {{
             let x = data[lane];
             let y = data[lane + 64u];
             {body}
         }}"
    );
    Shader::with(body, &source, Capabilities::all())
}
