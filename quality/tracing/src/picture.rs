//! A picture of a trace: a row for each span, its time to scale.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::span::{Span, Trace};

const ROW: usize = 24;
const NAMES: usize = 330;
const TIMES: usize = 560;
const WIDTH: usize = NAMES + TIMES + 90;
const TOP: usize = 66;
/// One for each service, told apart also without colours by their names in the rows.
const COLOURS: [&str; 6] = ["#3b6ea5", "#b3641c", "#2e7d5b", "#8a4f9e", "#a33b3b", "#5f6b7a"];

/// Draws a trace as an SVG document that reads in the light and in the dark.
#[must_use]
pub fn draw(trace: &Trace, title: &str) -> String {
    let rows = trace.rows();
    let begin = rows.iter().map(|(_, span)| span.time.0).min().unwrap_or(0);
    let end = rows.iter().map(|(_, span)| span.time.1).max().unwrap_or(1);
    let height = TOP + ROW * rows.len() + 40;
    let mut colours = BTreeMap::new();
    for (_, span) in &rows {
        let next = COLOURS[colours.len() % COLOURS.len()];
        colours.entry(span.service.as_str()).or_insert(next);
    }
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\" role=\"img\">\n\
         <title>{title}</title>\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"15\" font-weight=\"600\" fill=\"#1c2733\">{title}</text>\n",
    );
    let mut x = 16;
    for (service, colour) in &colours {
        let _ = writeln!(
            svg,
            "<rect x=\"{x}\" y=\"40\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
             <text x=\"{}\" y=\"50\" fill=\"#1c2733\">{service}</text>",
            x + 16
        );
        x += 40 + 8 * service.len();
    }
    for (row, (depth, span)) in rows.iter().enumerate() {
        draw_row(&mut svg, row, *depth, span, colours[span.service.as_str()], (begin, end));
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw_row(
    svg: &mut String,
    row: usize,
    depth: usize,
    span: &Span,
    colour: &str,
    (begin, end): (u64, u64),
) {
    let y = TOP + ROW * row;
    // Times are scaled in whole numbers: a picture needs no more.
    let scaled = |time: u64| {
        let share = u128::from(time - begin) * TIMES as u128 / u128::from((end - begin).max(1));
        usize::try_from(share).unwrap_or(TIMES)
    };
    let (from, to) = (scaled(span.time.0), scaled(span.time.1));
    let took = span.time.1 - span.time.0;
    let (ms, part) = (took / 1_000_000, took / 10_000 % 100);
    let _ = writeln!(
        svg,
        "<line x1=\"16\" y1=\"{0}\" x2=\"{1}\" y2=\"{0}\" stroke=\"#e3e8ee\"/>\
         <text x=\"{2}\" y=\"{3}\" fill=\"#1c2733\">{4}</text>\
         <rect x=\"{5}\" y=\"{6}\" width=\"{7}\" height=\"12\" rx=\"2\" fill=\"{colour}\"/>\
         <text x=\"{8}\" y=\"{3}\" fill=\"#5f6b7a\" font-size=\"11\">{ms}.{part:02} ms</text>",
        y + ROW,
        WIDTH - 16,
        16 + 16 * depth,
        y + 16,
        escaped(&span.name),
        NAMES + from,
        y + 6,
        (to - from).max(2),
        NAMES + from.max(to) + 8,
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
