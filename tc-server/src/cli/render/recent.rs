//! The last minutes as text.

use super::{Sheet, Style, whole};
use crate::admin::model::{Recent, RecentStep, Timing};

/// How much time one row tells of.
const ROW_MS: u64 = 60_000;

/// A cell of which nothing is known.
const NONE: &str = "-";

/// Renders one row a minute, the latest last. Sizes are those at its end, a duration is the p99 of
/// the slowest step in it: p99s of steps do not add up to that of a minute.
#[must_use]
pub fn render_recent(recent: &Recent, style: Style) -> String {
    let seconds = recent.step_ms / 1_000;
    if recent.steps.is_empty() {
        return format!("nothing yet: the first step of {seconds} s has not ended");
    }
    let columns = [
        whole("UTC"),
        whole("COMMITS/S"),
        whole("ROLLED BACK"),
        whole("ACTIVE").left_out(6),
        whole("WAITING"),
        whole("PENDING"),
        whole("OPERATOR").left_out(5),
        whole("BEGIN").left_out(1),
        whole("REGISTER").left_out(2),
        whole("COMMIT"),
        whole("PHASE TWO").left_out(4),
        whole("LOCK WAIT").left_out(7),
        whole("STORE").left_out(3),
    ];
    let mut sheet = Sheet::new(style, columns);
    let per_row = usize::try_from(ROW_MS / recent.step_ms.max(1)).unwrap_or(1).max(1);
    // From the end, so that only the first row may tell of less than a minute.
    let rows: Vec<&[RecentStep]> = recent.steps.rchunks(per_row).collect();
    for steps in rows.into_iter().rev() {
        let cells = cells(steps, recent.step_ms);
        sheet.row(cells.each_ref().map(String::as_str));
    }
    let legend =
        format!("durations: the p99 of the slowest {seconds} s of each row; --json has all steps");
    format!("{}\n{legend}", sheet.text())
}

fn cells(steps: &[RecentStep], step_ms: u64) -> [String; 13] {
    let rate = |of: fn(&RecentStep) -> u64| {
        let tenths = steps.iter().map(of).sum::<u64>() * 10_000;
        let tenths = tenths / (step_ms * steps.len() as u64).max(1);
        format!("{}.{}", tenths / 10, tenths % 10)
    };
    let size = |of: fn(&RecentStep) -> Option<usize>| {
        let last = steps.iter().rev().find_map(of);
        last.map_or_else(|| NONE.to_owned(), |size| size.to_string())
    };
    let slowest = |of: fn(&RecentStep) -> Option<Timing>| {
        let slowest = steps.iter().filter_map(of).map(|timing| timing.p99_us).max();
        slowest.map_or_else(|| NONE.to_owned(), duration)
    };
    [
        steps.last().map_or(NONE, |last| time_of_day(&last.at)).to_owned(),
        rate(|step| step.committed),
        // Not as a rate: a few a minute are worth a look.
        steps.iter().map(|step| step.rolled_back).sum::<u64>().to_string(),
        size(|step| step.active),
        size(|step| step.waiting),
        size(|step| step.pending),
        size(|step| step.needs_operator),
        slowest(|step| step.begin),
        slowest(|step| step.register),
        slowest(|step| step.commit),
        slowest(|step| step.phase_two),
        slowest(|step| step.lock_wait),
        slowest(|step| step.store_commit),
    ]
}

/// Returns the part of an RFC 3339 text that differs within minutes, such as `05:20:10`.
fn time_of_day(at: &str) -> &str {
    let time = at.split_once('T').map_or(at, |(_, time)| time);
    time.split(['.', 'Z']).next().unwrap_or(time)
}

/// Formats a duration with two digits or more.
fn duration(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} µs"),
        1_000..10_000 => format!("{}.{} ms", micros / 1_000, micros / 100 % 10),
        10_000..1_000_000 => format!("{} ms", micros / 1_000),
        1_000_000.. => format!("{}.{} s", micros / 1_000_000, micros / 100_000 % 10),
    }
}
