//! What people do instead: unscale and check, norm, scale as three plain f32 passes with the crate's own planner. The five
//! passes over memory that PyTorch makes.

use std::fmt::Write as _;

use gradclip::plan::{Access, Dispatch};
use gradclip::{Context, Error, Format, GradSet, wgpu};

use crate::gradients::Gradients;
use crate::kernels::{Binding, bind, buffer, filled, layout, part, pipeline};

/// Words of a thread's block, as in the crate's kernels.
const BLOCK: u32 = 16;

const COMMON: &str = concat!(include_str!("three_pass.wgsl"), include_str!("add_up.wgsl"));
const FINISH: &str = include_str!("three_pass_finish.wgsl");
const TILE: &str = include_str!("three_pass_tile.wgsl");

#[derive(Clone, Copy, PartialEq)]
enum Piece {
    Unscale,
    Square,
    Scale,
}

pub struct ThreePass {
    own: wgpu::BindGroup,
    passes: [Vec<Bound>; 3],
    finish: Bound,
    state: wgpu::Buffer,
}

struct Bound {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    count: (u32, u32),
}

/// The twin of `struct Dispatch` in `three_pass.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
struct Uniform {
    first_tile: u32,
    tile_count: u32,
    tile_words: u32,
    tiles_at: u32,
    inverse_scale: f32,
    max_norm: f32,
    all_tiles: u32,
    padding: u32,
}

impl ThreePass {
    /// Passes over `gradients` in f32, cut as `set` cuts them.
    pub fn new(gpu: &Context, set: &GradSet, gradients: &Gradients, (scale, max_norm): (f32, f32)) -> Self {
        debug_assert!(gradients.format == Format::F32);
        let device = gpu.device();
        let plan = set.plan();
        let storage = wgpu::BufferUsages::STORAGE;
        let uniform = |dispatch: Option<&Dispatch>| {
            let uniform = Uniform {
                first_tile: dispatch.map_or(0, |d| d.first_tile),
                tile_count: dispatch.map_or(0, |d| d.tiles),
                tile_words: plan.tile_words,
                tiles_at: plan.tiles_at(),
                inverse_scale: 1.0 / scale,
                max_norm,
                all_tiles: plan.tiles,
                padding: 0,
            };
            filled(device, bytemuck::bytes_of(&uniform), wgpu::BufferUsages::UNIFORM)
        };
        let table = filled(device, bytemuck::cast_slice(&plan.table()), storage);
        let partials = buffer(device, u64::from(plan.tiles.max(1)) * 4, storage);
        let copies = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let state = buffer(device, 12, storage | copies);
        let own_layout = layout(device, &[Binding::Read, Binding::Write, Binding::Write]);
        let own = [table.as_entire_binding(), partials.as_entire_binding(), state.as_entire_binding()];
        let own = bind(device, &own_layout, &own);

        let spare = buffer(device, 256, storage);
        let most = plan.dispatches.iter().map(|d| d.windows.len()).max().unwrap_or(1);
        let passes = [Piece::Unscale, Piece::Square, Piece::Scale].map(|piece| {
            let kernel = |access, windows| {
                let window = if piece == Piece::Square { Binding::Read } else { Binding::Write };
                let bindings: Vec<Binding> =
                    std::iter::once(Binding::Uniform).chain(std::iter::repeat_n(window, windows)).collect();
                let layout = layout(device, &bindings);
                let pipeline =
                    pipeline(device, "three passes", &piece.wgsl(access, windows), &[&own_layout, &layout]);
                (pipeline, layout, windows)
            };
            let kernels = Access::ALL.map(|access| [1, most].map(|windows| kernel(access, windows)));
            let bound = plan.dispatches.iter().map(|dispatch| {
                let (pipeline, layout, slots) =
                    &kernels[dispatch.access as usize][usize::from(dispatch.windows.len() > 1)];
                let uniform = uniform(Some(dispatch));
                let mut resources = vec![uniform.as_entire_binding()];
                resources.extend(dispatch.windows.iter().map(|&w| {
                    let window = &plan.windows[w];
                    part(&gradients.buffers[window.buffer], window.offset, window.size)
                }));
                resources.resize(1 + slots, spare.as_entire_binding());
                let group = bind(device, layout, &resources);
                Bound { pipeline: pipeline.clone(), group, count: dispatch.groups }
            });
            bound.collect()
        });
        let layout = layout(device, &[Binding::Uniform]);
        let text = [COMMON, FINISH].concat();
        let finish = Bound {
            pipeline: pipeline(device, "three passes, finish", &text, &[&own_layout, &layout]),
            group: bind(device, &layout, &[uniform(None).as_entire_binding()]),
            count: (1, 1),
        };
        Self { own, passes, finish, state }
    }

    pub fn record(&self, encoder: &mut wgpu::CommandEncoder) -> Result<(), Error> {
        encoder.clear_buffer(&self.state, 0, None);
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_bind_group(0, &self.own, &[]);
        let [unscale, square, scale] = &self.passes;
        for bound in unscale.iter().chain(square).chain([&self.finish]).chain(scale) {
            pass.set_pipeline(&bound.pipeline);
            pass.set_bind_group(1, &bound.group, &[]);
            pass.dispatch_workgroups(bound.count.0, bound.count.1, 1);
        }
        Ok(())
    }

    /// `found_inf` (0 or 1), norm and coefficient, as bits.
    pub fn state(&self) -> &wgpu::Buffer {
        &self.state
    }
}

impl Piece {
    fn wgsl(self, access: Access, windows: usize) -> String {
        let mode = if self == Self::Square { "read" } else { "read_write" };
        let element = if access == Access::Quads { "vec4<f32>" } else { "f32" };
        let mut text = COMMON.to_owned();
        for w in 0..windows {
            let binding = w + 1;
            _ = writeln!(
                text,
                "@group(1) @binding({binding}) var<storage, {mode}> window_{w}: array<{element}>;"
            );
        }
        let block = match access {
            Access::Quads => self.quads(),
            Access::Words => self.words(),
        };
        text += "fn visit(slot: u32, start: u32, lane: u32, end: u32, factor: f32, \
            sum: ptr<function, vec4<f32>>, bad: ptr<function, bool>) {\n";
        if windows == 1 {
            text += &block.replace("WINDOW", "window_0");
        } else {
            text += "switch slot {\n";
            for w in 0..windows {
                let case = if w + 1 == windows { "default".into() } else { format!("case {w}u") };
                let block = block.replace("WINDOW", &format!("window_{w}"));
                _ = writeln!(text, "{case}: {{\n{block}}}");
            }
            text += "}\n";
        }
        text += "}\n";
        let (factor, after) = match self {
            Self::Unscale => ("dispatch.inverse_scale", "    if bad { state.found_inf = 1u; }"),
            Self::Square => (
                "1.0",
                "    let all = add_up(lane, sum.x + sum.y + sum.z + sum.w);\n    if lane == 0u { partials[tile] = all; }",
            ),
            Self::Scale => ("state.coefficient", ""),
        };
        text + &TILE.replace("FACTOR", factor).replace("AFTER", after)
    }

    /// Sixteen words of a thread, one at a time. Those beyond the tile read its last one, because a branch would cost a CPU
    /// driver both of its sides.
    fn words(self) -> String {
        let mut text = String::new();
        for i in 0..BLOCK {
            _ = writeln!(text, "let at{i} = start + lane + {}u;", i * 256);
            _ = writeln!(text, "let x{i} = WINDOW[min(at{i}, end - 1u)];");
        }
        for i in 0..BLOCK {
            let part = ["x", "y", "z", "w"][i as usize % 4];
            let store = |value: &str| format!("if at{i} < end {{ WINDOW[at{i}] = {value}; }}");
            let test = format!("*bad |= (bitcast<u32>(y{i}) & 0x7f800000u) == 0x7f800000u;");
            _ = match self {
                Self::Unscale => {
                    writeln!(text, "let y{i} = x{i} * factor; {test} {}", store(&format!("y{i}")))
                }
                Self::Scale => writeln!(text, "{}", store(&format!("x{i} * factor"))),
                Self::Square => {
                    let y = format!("let y{i} = select(0.0, x{i}, at{i} < end);");
                    writeln!(text, "{y} (*sum).{part} += y{i} * y{i};")
                }
            };
        }
        text
    }

    /// Four times four words.
    fn quads(self) -> String {
        let mut text = String::new();
        for i in 0..BLOCK / 4 {
            _ = writeln!(text, "let at{i} = start / 4u + lane + {}u;", i * 256);
            _ = writeln!(text, "let x{i} = WINDOW[min(at{i}, end / 4u - 1u)];");
        }
        for i in 0..BLOCK / 4 {
            let store = |value: &str| format!("if at{i} < end / 4u {{ WINDOW[at{i}] = {value}; }}");
            let test = format!(
                "*bad |= any((bitcast<vec4<u32>>(y{i}) & vec4<u32>(0x7f800000u)) == vec4<u32>(0x7f800000u));"
            );
            _ = match self {
                Self::Unscale => {
                    writeln!(text, "let y{i} = x{i} * factor; {test} {}", store(&format!("y{i}")))
                }
                Self::Scale => writeln!(text, "{}", store(&format!("x{i} * factor"))),
                Self::Square => {
                    let y = format!("let y{i} = select(vec4<f32>(0.0), x{i}, at{i} < end / 4u);");
                    writeln!(text, "{y} *sum += y{i} * y{i};")
                }
            };
        }
        text
    }
}
