//! Draws a report: latency curves, or figures over time. It is plain SVG: two axes and lines need
//! no library.

use std::fmt::Write;

use crate::report::{Report, Row};

const WIDTH: f64 = 1000.0;
const HEIGHT: f64 = 540.0;
const LEFT: f64 = 80.0;
const RIGHT: f64 = 340.0;
const TOP: f64 = 50.0;
const BOTTOM: f64 = 60.0;
/// Colours that people with any colour vision can distinguish.
const COLOURS: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999"];

/// A line of the picture. `x` and `y` run from 0 to 1.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// A mark at an axis, at a position from 0 to 1.
struct Mark {
    at: f64,
    text: String,
}

/// The picture.
pub(crate) fn svg(report: &Report) -> String {
    if report.series.is_empty() { latency_curves(report) } else { over_time(report) }
}

/// Draws the latency, logarithmic, over the share of operations that were faster, in nines.
fn latency_curves(report: &Report) -> String {
    let rows: Vec<&Row> = report.rows.iter().filter(|row| !row.curve.is_empty()).collect();
    let values = || rows.iter().flat_map(|row| &row.curve).map(|(_, us)| us.max(0.1).log10());
    let lowest = values().reduce(f64::min).unwrap_or(0.0).floor();
    let highest = values().fold(lowest + 1.0, f64::max).ceil();
    let nines = |share: f64| (-(1.0 - share).max(1e-5).log10() / 5.0).clamp(0.0, 1.0);
    let height = |us: f64| ((us.max(0.1).log10() - lowest) / (highest - lowest)).clamp(0.0, 1.0);
    let line = |row: &&Row| Line {
        name: row.name.clone(),
        points: row.curve.iter().map(|&(share, us)| (nines(share), height(us))).collect(),
    };
    let shares =
        [(0.0, "0"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];
    let across = shares.map(|(share, text)| Mark { at: nines(share), text: text.to_owned() });
    let powers = std::iter::successors(Some(lowest), |power| Some(power + 1.0));
    let up: Vec<Mark> = powers
        .take_while(|power| *power <= highest)
        .map(|power| 10_f64.powf(power))
        .map(|us| Mark { at: height(us), text: format!("{us} µs") })
        .collect();
    let title = format!("{}: latency by share of operations", report.name);
    picture(&title, &rows.iter().map(line).collect::<Vec<_>>(), &across, &up)
}

/// Draws each figure in proportion to its own largest value, so that a rise shows in every unit.
fn over_time(report: &Report) -> String {
    let points = || report.series.iter().flat_map(|series| &series.points);
    let end = points().map(|point| point.0).fold(1.0, f64::max);
    let lines: Vec<Line> = report
        .series
        .iter()
        .map(|series| {
            let most = series.points.iter().map(|point| point.1).fold(f64::MIN_POSITIVE, f64::max);
            let scaled = series.points.iter().map(|(x, y)| (x / end, y / most));
            Line { name: format!("{} (to {most:.4})", series.name), points: scaled.collect() }
        })
        .collect();
    let tenths = |unit: f64, name: &str| -> Vec<Mark> {
        let mark = |tenth: u32| f64::from(tenth) / 10.0;
        let text = |at: f64| format!("{:.0} {name}", at * unit);
        (0..=10)
            .step_by(2)
            .map(|tenth| (mark(tenth), text(mark(tenth))))
            .map(|(at, text)| Mark { at, text })
            .collect()
    };
    let title = format!("{}: figures over time", report.name);
    picture(&title, &lines, &tenths(end, "s"), &tenths(100.0, "%"))
}

fn picture(title: &str, lines: &[Line], across: &[Mark], up: &[Mark]) -> String {
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut put = |element: String| writeln!(svg, "{element}").expect("a string takes any text");
    put(text(LEFT, 28.0, "start", &format!("<tspan font-size=\"16\">{}</tspan>", escaped(title))));
    for mark in across {
        put(grid(place((mark.at, 0.0)), place((mark.at, 1.0))));
        put(text(place((mark.at, 0.0)).0, HEIGHT - BOTTOM + 20.0, "middle", &escaped(&mark.text)));
    }
    for mark in up {
        put(grid(place((0.0, mark.at)), place((1.0, mark.at))));
        put(text(LEFT - 8.0, place((0.0, mark.at)).1 + 4.0, "end", &escaped(&mark.text)));
    }
    for (number, line) in lines.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        put(poly(line, colour));
        let y = TOP + 16.0 * number as f64;
        let x = WIDTH - RIGHT + 16.0;
        put(format!(
            "<rect x=\"{x}\" y=\"{}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>",
            y - 9.0
        ));
        put(text(x + 16.0, y, "start", &escaped(&line.name)));
    }
    svg.push_str("</svg>\n");
    svg
}

fn place((x, y): (f64, f64)) -> (f64, f64) {
    let (wide, high) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    (LEFT + x * wide, HEIGHT - BOTTOM - y * high)
}

fn poly(line: &Line, colour: &str) -> String {
    let points: Vec<String> = line
        .points
        .iter()
        .map(|point| place(*point))
        .map(|(x, y)| format!("{x:.1},{y:.1}"))
        .collect();
    let points = points.join(" ");
    format!(
        "<polyline points=\"{points}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>"
    )
}

fn grid(from: (f64, f64), to: (f64, f64)) -> String {
    format!(
        "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>",
        from.0, from.1, to.0, to.1
    )
}

fn text(x: f64, y: f64, anchor: &str, inner: &str) -> String {
    format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{inner}</text>")
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Series;

    #[test]
    fn a_curve_is_a_line_within_the_picture() {
        let mut report = Report::new("tc");
        let curve = vec![(0.0, 50.0), (0.5, 100.0), (1.0, 9_000.0)];
        report.rows.push(Row { name: "a < b".to_owned(), curve, ..Row::default() });
        let svg = svg(&report);
        assert!(svg.contains("a &lt; b") && svg.contains("10000 µs"), "{svg}");
        assert_eq!(svg.matches("<polyline").count(), 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }

    #[test]
    fn figures_over_time_are_drawn_instead_where_there_are_any() {
        let mut report = Report::new("soak");
        let points = vec![(0.0, 1.0), (10.0, 2.0)];
        report.series.push(Series { name: "memory".to_owned(), points });
        let svg = svg(&report);
        assert!(svg.contains("memory (to 2.0000)") && svg.contains("10 s"), "{svg}");
    }

    #[test]
    fn an_empty_report_is_a_picture_too() {
        assert!(svg(&Report::new("tc")).ends_with("</svg>\n"));
    }
}
