//! Curves as SVG.

use plotters::prelude::*;
use std::path::Path;

/// A curve.
pub struct Line {
    /// The name of the line in the legend.
    pub label: String,
    /// (bytes, value), by rising bytes.
    pub points: Vec<(f64, f64)>,
    /// Measured values are drawn with a mark at each point, computed ones as a thin line.
    pub measured: bool,
}

/// A picture of curves over message sizes.
pub struct Chart<'a> {
    /// The title above the picture.
    pub title: &'a str,
    /// The name of the values, with their unit.
    pub values: &'a str,
    /// True for a logarithmic scale.
    pub log: bool,
    /// The curves.
    pub lines: Vec<Line>,
}

const SIZE: (u32, u32) = (960, 600);

/// Writes the picture.
pub fn write(path: &Path, chart: &Chart<'_>) -> Result<(), String> {
    let text = svg(chart)?;
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// The picture as SVG text.
pub fn svg(chart: &Chart<'_>) -> Result<String, String> {
    let mut text = String::new();
    let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
    let drawn = draw(&area, chart).and_then(|()| area.present().map_err(|e| e.to_string()));
    drop(area);
    drawn.map(|()| text)
}

/// The ranges of all points; default ranges without points.
fn bounds(chart: &Chart<'_>) -> ((f64, f64), (f64, f64)) {
    let points = || chart.lines.iter().flat_map(|l| l.points.iter());
    let span = |values: &mut dyn Iterator<Item = f64>| {
        let (low, high) = values.fold((f64::INFINITY, 0.0f64), |(a, b), v| (a.min(v), b.max(v)));
        if low < high {
            (low, high)
        } else {
            (1.0, 10.0)
        }
    };
    (
        span(&mut points().map(|p| p.0)),
        span(&mut points().map(|p| p.1)),
    )
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

fn draw(area: &Area<'_>, chart: &Chart<'_>) -> Result<(), String> {
    area.fill(&WHITE).map_err(|e| e.to_string())?;
    let ((x0, x1), (y0, y1)) = bounds(chart);
    let mut builder = ChartBuilder::on(area);
    builder
        .caption(chart.title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64);
    let x = (x0..x1).log_scale().base(4.0);
    // The two kinds of axis have different types.
    macro_rules! on {
        ($y:expr) => {{
            let mut context = builder
                .build_cartesian_2d(x, $y)
                .map_err(|e| e.to_string())?;
            context
                .configure_mesh()
                .x_desc("bytes")
                .y_desc(chart.values)
                .x_label_formatter(&|bytes| size(*bytes))
                .y_label_formatter(&|value| format!("{value}"))
                .light_line_style(WHITE)
                .draw()
                .map_err(|e| e.to_string())?;
            for (n, line) in chart.lines.iter().enumerate() {
                let color = Palette99::pick(n).to_rgba();
                let style = color.stroke_width(if line.measured { 2 } else { 1 });
                let points = line.points.iter().copied();
                context
                    .draw_series(LineSeries::new(points, style))
                    .map_err(|e| e.to_string())?
                    .label(line.label.clone())
                    .legend(move |(x, y)| PathElement::new([(x, y), (x + 20, y)], style));
                if line.measured {
                    let marks = line
                        .points
                        .iter()
                        .map(|p| Circle::new(*p, 3, color.filled()));
                    context.draw_series(marks).map_err(|e| e.to_string())?;
                }
            }
            context
                .configure_series_labels()
                .position(SeriesLabelPosition::UpperLeft)
                .background_style(WHITE.mix(0.85))
                .border_style(BLACK.mix(0.3))
                .draw()
                .map_err(|e| e.to_string())?;
        }};
    }
    if chart.log {
        on!((y0..y1).log_scale());
    } else {
        on!(0.0..y1 * 1.05);
    }
    Ok(())
}

/// Bytes for users: 4096 is `4K`.
pub fn size(bytes: f64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    for (shift, unit) in units {
        let whole = f64::from(1u32 << shift);
        if bytes >= whole {
            let value = format!("{:.1}", bytes / whole);
            return format!("{}{unit}", value.trim_end_matches(".0"));
        }
    }
    format!("{bytes:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(lines: Vec<Line>, log: bool) -> String {
        let (title, values) = ("A <title>", "GB/s");
        svg(&Chart {
            title,
            values,
            log,
            lines,
        })
        .unwrap()
    }

    #[test]
    fn a_picture_has_its_curves_by_name() {
        let line = |label: &str, measured| Line {
            label: label.to_owned(),
            points: vec![(1.0, 2.0), (64.0, 5.0), (1e6, 40.0)],
            measured,
        };
        for log in [false, true] {
            let text = chart(vec![line("one", true), line("two & three", false)], log);
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
            assert!(text.contains("one") && text.contains("two &amp; three"));
            assert!(text.contains("A &lt;title&gt;"));
            assert_eq!(
                text.matches("<circle").count(),
                3,
                "marks of the measured one"
            );
            assert!(text.matches("<polyline").count() >= 2);
        }
    }

    #[test]
    fn a_picture_of_nothing_is_still_one() {
        assert!(chart(Vec::new(), true).contains("</svg>"));
        let one = Line {
            label: "x".to_owned(),
            points: vec![(8.0, 1.0)],
            measured: true,
        };
        assert!(chart(vec![one], false).contains("</svg>"));
    }

    #[test]
    fn sizes_read_well() {
        let sizes: Vec<String> = [1.0, 1023.0, 1024.0, 1536.0, 67_108_864.0]
            .map(size)
            .to_vec();
        assert_eq!(sizes, ["1", "1023", "1K", "1.5K", "64M"]);
    }
}
