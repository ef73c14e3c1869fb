//! The run as a picture: a bar for each variant against the limit, and how the time of a step grows.

use plotters::coord::Shift;
use plotters::prelude::*;

use crate::gradients::Layout;
use crate::record::Record;
use crate::row::Row;
use crate::table::{best, name};
use crate::variant::Variant;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Fault<'a> = DrawingAreaErrorKind<<SVGBackend<'a> as DrawingBackend>::ErrorType>;

const WIDTH: i32 = 1000;
/// Height of a bar, gap included, and of a panel's title and margin.
const BAR: i32 = 18;
const HEAD: i32 = 44;
const GROWTH: i32 = 380;
/// Bars begin here, and their numbers need room at the end.
const LEFT: i32 = 190;
const RIGHT: i32 = WIDTH - 90;
/// Longer bars than this many times the limit are cut off; their number tells.
const LONGEST: f64 = 8.0;

const OURS: RGBColor = RGBColor(31, 119, 180);
const OTHERS: RGBColor = RGBColor(160, 160, 160);
const LIMIT: RGBColor = RGBColor(214, 39, 40);

/// One model in f32: what it took, over a read pass and a read-write pass.
struct Panel<'a> {
    title: String,
    bars: Vec<(&'a Row, f64)>,
}

pub fn svg(record: &Record) -> Result<String, String> {
    let panels = panels(record);
    let bars: i32 = panels.iter().map(|p| HEAD + BAR * p.bars.len() as i32).sum();
    let height = 60 + bars + GROWTH;
    let mut text = String::new();
    draw(record, &panels, &mut text, height as u32).map_err(|e| format!("the chart: {e}"))?;
    Ok(text)
}

fn draw<'a>(
    record: &Record,
    panels: &[Panel<'_>],
    text: &'a mut String,
    height: u32,
) -> Result<(), Fault<'a>> {
    let area = SVGBackend::with_string(text, (WIDTH as u32, height)).into_drawing_area();
    area.fill(&WHITE)?;
    let of = |key: &str| record.environment[key].as_str().unwrap_or_default().to_owned();
    let title = format!(
        "gradclip {} on {}, {}, {}",
        of("gradclip"),
        of("adapter"),
        of("driver_info"),
        record.date.get(..10).unwrap_or_default()
    );
    area.draw(&Text::new(title, (16, 14), ("sans-serif", 18).into_font()))?;
    let mut top = 44;
    for panel in panels {
        draw_panel(&area, panel, top)?;
        top += HEAD + BAR * panel.bars.len() as i32;
    }
    let (_, below) = area.split_vertically(top + 10);
    draw_growth(&below, record)?;
    area.present()
}

/// Models in an arena; PyTorch has a buffer for each.
fn panels(record: &Record) -> Vec<Panel<'_>> {
    let steps = record
        .results
        .iter()
        .filter(|r| r.variant == Variant::Step && r.format == "f32" && r.layout == Layout::Arena);
    let panel = |step: &Row| {
        let of = |variant, layout| {
            record.results.iter().find(move |r: &&Row| {
                (&r.shape, &r.format, r.layout, r.variant) == (&step.shape, &step.format, layout, variant)
            })
        };
        let read = of(Variant::LimitRead, Layout::Arena)?;
        let write = of(Variant::LimitReadWrite, Layout::Arena)?;
        let limit = best(read).median + best(write).median;
        let rows = Variant::ALL
            .into_iter()
            .filter(|v| !v.is_limit())
            .filter_map(|v| of(v, if v.is_pytorch() { Layout::Separate } else { Layout::Arena }));
        let bars = rows.map(|row| (row, best(row).median / limit)).collect();
        let title = format!(
            "{}: {} tensors, {:.1} M elements, f32; a read pass and a read-write pass take {:.3} ms",
            name(step),
            step.tensors,
            step.elements as f64 / 1e6,
            limit
        );
        Some(Panel { title, bars })
    };
    steps.filter_map(panel).collect()
}

fn draw_panel<'a>(area: &Area<'a>, panel: &Panel<'_>, top: i32) -> Result<(), Fault<'a>> {
    area.draw(&Text::new(panel.title.clone(), (16, top), ("sans-serif", 14).into_font()))?;
    let longest = panel.bars.iter().map(|b| b.1).fold(1.5, f64::max).min(LONGEST);
    let x = |times: f64| LEFT + (f64::from(RIGHT - LEFT) * (times / longest).min(1.0)) as i32;
    let first = top + 24;
    for (i, (row, times)) in panel.bars.iter().enumerate() {
        let y = first + BAR * i as i32;
        let ours = row.variant.name().starts_with("step");
        let color = if ours { OURS } else { OTHERS };
        area.draw(&Text::new(row.variant.name(), (16, y + 1), ("sans-serif", 12).into_font()))?;
        area.draw(&Rectangle::new([(LEFT, y), (x(*times), y + BAR - 5)], color.filled()))?;
        let number = format!("{times:.2} x");
        area.draw(&Text::new(number, (x(*times) + 6, y + 1), ("sans-serif", 12).into_font()))?;
    }
    let bottom = first + BAR * panel.bars.len() as i32;
    area.draw(&PathElement::new([(x(1.0), first - 4), (x(1.0), bottom - 2)], LIMIT.stroke_width(2)))
}

/// Time against size for one tensor in f32, both axes logarithmic.
fn draw_growth<'a>(area: &Area<'a>, record: &Record) -> Result<(), Fault<'a>> {
    let one = |variant: Variant| -> Vec<(f64, f64)> {
        let rows = record.growth.iter().filter(|r| r.variant == variant && r.tensors == 1);
        let rows = rows.filter(|r| r.elements.is_power_of_two());
        rows.map(|r| (r.elements as f64, best(r).median)).collect()
    };
    let (step, read, write) = (one(Variant::Step), one(Variant::LimitRead), one(Variant::LimitReadWrite));
    let limit: Vec<(f64, f64)> = read.iter().zip(&write).map(|(r, w)| (r.0, r.1 + w.1)).collect();
    let (Some(first), Some(last)) = (step.first(), step.last()) else { return Ok(()) };
    let times = || step.iter().chain(&limit).map(|p| p.1);
    let (least, most) = (times().fold(f64::MAX, f64::min), times().fold(f64::MIN, f64::max));
    let mut chart = ChartBuilder::on(area)
        .caption("One tensor of f32: time of a step against its length", ("sans-serif", 14))
        .margin(14)
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(
            (first.0 / 1.5..last.0 * 1.5).log_scale(),
            (least / 1.5..most * 1.5).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("elements")
        .y_desc("ms")
        .x_label_formatter(&|x| format!("{x:.0}"))
        .y_label_formatter(&|y| if *y < 1.0 { format!("{y:.3}") } else { format!("{y:.0}") })
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (label, points, color) in [("step", step, OURS), ("read pass and read-write pass", limit, LIMIT)] {
        let style = color.stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.clone(), style))?
            .label(label)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], style));
        chart.draw_series(points.into_iter().map(|p| Circle::new(p, 3, color.filled())))?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE)
        .border_style(OTHERS)
        .draw()?;
    Ok(())
}
