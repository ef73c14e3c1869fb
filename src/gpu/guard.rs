//! What wgpu refuses becomes an [`Error`], and not a panic in the caller's device.

use crate::Error;

/// Runs `make` inside error scopes. Also tells whether the device is still there: wgpu keeps the loss of a device from
/// error scopes.
pub(crate) fn guarded<T>(device: &wgpu::Device, what: &str, make: impl FnOnce() -> T) -> Result<T, Error> {
    let scopes = [wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Internal]
        .map(|filter| device.push_error_scope(filter));
    let made = make();
    let lost = is_lost(device);
    let mut refused = None;
    for scope in scopes.into_iter().rev() {
        refused = pollster::block_on(scope.pop()).or(refused);
    }
    match refused {
        _ if lost => Err(Error::DeviceLost { what: what.into() }),
        None => Ok(made),
        Some(error) => Err(Error::Wgpu { what: what.into(), message: on_one_line(&error.to_string()) }),
    }
}

/// The error of a call that failed with wgpu's own words.
pub(crate) fn failed(device: &wgpu::Device, what: &str, message: &dyn std::fmt::Display) -> Error {
    match alive(device, what) {
        Err(lost) => lost,
        Ok(()) => Error::Wgpu { what: what.into(), message: on_one_line(&message.to_string()) },
    }
}

/// Whether the device is still there.
pub(crate) fn alive(device: &wgpu::Device, what: &str) -> Result<(), Error> {
    guarded(device, what, || ())
}

/// A lost device makes no buffer that could be written. Inside error scopes.
fn is_lost(device: &wgpu::Device) -> bool {
    let probe = device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("gradclip: is the device there?"),
        size: 4,
        usage: wgpu::BufferUsages::COPY_SRC,
        mapped_at_creation: true,
    });
    let lost = probe.get_mapped_range_mut(..).is_err();
    probe.unmap();
    lost
}

/// wgpu's errors are paragraphs: a line each for what failed, inside what, and why.
pub(crate) fn on_one_line(paragraph: &str) -> String {
    let lines = paragraph.lines().map(str::trim).filter(|line| !line.is_empty() && *line != "Caused by:");
    lines.collect::<Vec<_>>().join(": ")
}
