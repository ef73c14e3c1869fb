//! Every composed shader becomes SPIR-V, MSL and HLSL, with nothing beyond what WebGPU guarantees. (`Shader::new` parses
//! and validates it without any capability.)

use naga::back::{hlsl, msl, spv};

use crate::{Shader, shaders};

#[test]
fn every_kernel_becomes_spir_v() {
    for shader in shaders() {
        let options = spv::Options::default();
        let words = spv::write_vec(&shader.module, &shader.info, &options, None)
            .unwrap_or_else(|e| panic!("{}: {e}", shader.name));
        assert_eq!(words[0], 0x0723_0203, "{}", shader.name);
    }
}

#[test]
fn every_kernel_becomes_msl() {
    for shader in shaders() {
        // Bindings depend on the pipeline layout; any will do to see that the text can be written.
        let options =
            msl::Options { fake_missing_bindings: true, lang_version: (2, 0), ..Default::default() };
        let (text, _) =
            msl::write_string(&shader.module, &shader.info, &options, &msl::PipelineOptions::default())
                .unwrap_or_else(|e| panic!("{}: {e}", shader.name));
        assert!(text.contains("kernel void main_("), "{}", shader.name);
    }
}

#[test]
fn every_kernel_becomes_hlsl() {
    for shader in shaders() {
        let options = hlsl::Options { fake_missing_bindings: true, ..Default::default() };
        let pipeline = hlsl::PipelineOptions::default();
        let mut text = String::new();
        hlsl::Writer::new(&mut text, &options, &pipeline)
            .write(&shader.module, &shader.info, None)
            .unwrap_or_else(|e| panic!("{}: {e}", shader.name));
        let threads = format!("[numthreads({}, 1, 1)]", threads(shader));
        assert!(text.contains(&threads), "{}", shader.name);
    }
}

/// The scale is one number: one thread updates it.
fn threads(shader: &Shader) -> u32 {
    if shader.is_any(&["ScaleUpdate", "Agree", "Gather"]) { 1 } else { 256 }
}

#[test]
fn every_kernel_has_one_entry_point_of_256_threads_or_one() {
    for shader in shaders() {
        let [entry] = shader.module.entry_points.as_slice() else {
            panic!("{}: {} entry points", shader.name, shader.module.entry_points.len());
        };
        assert_eq!(entry.name, "main", "{}", shader.name);
        assert_eq!(entry.stage, naga::ShaderStage::Compute, "{}", shader.name);
        assert_eq!(entry.workgroup_size, [threads(shader), 1, 1], "{}", shader.name);
        assert!(entry.workgroup_size_overrides.is_none(), "{}", shader.name);
    }
}
