//! A refused branch as text: its rows, and the effect of each resolution on them.

use super::transaction::push;
use super::{Style, add_row, printable, table, text};
use crate::admin::model::{
    Branch, BranchState, DirtyRow, EventFate, HeldEvents, Mode, Refusal, RowChange, RowStanding,
};

/// The prefix of Java clients' database resources.
const JDBC: &str = "jdbc:";

pub(super) fn push_refusal(
    shown: &mut String,
    xid: &str,
    branch: &Branch,
    refusal: &Refusal,
    style: Style,
) {
    let title = format!("branch {} needs a decision: {}", branch.id, printable(&refusal.error));
    let rows = refusal.rows.iter().map(|row| dirty_row(row, style)).collect::<String>();
    push(shown, &title, &format!("{}{rows}", summary(refusal)));
    if branch.state == BranchState::Refused {
        push(shown, "to end it", &resolutions(xid, branch, refusal));
    }
}

/// Returns the number of rows and events, which may be more than are listed.
fn summary(refusal: &Refusal) -> String {
    let Refusal { rows, rows_total, rows_dirty, events, .. } = refusal;
    let held = events.map_or(0, |events| events.held);
    if *rows_total == 0 && held == 0 {
        return String::new();
    }
    let mut summary = format!("{}, {rows_dirty} of them dirty", count(*rows_total, "row"));
    if *rows_total > rows.len() as u64 {
        summary += &format!(", {} shown", rows.len());
    }
    if held > 0 {
        summary += &format!("; {} held", count(held, "event"));
    }
    summary + "\n\n"
}

fn count(of: u64, what: &str) -> String {
    if of == 1 { format!("1 {what}") } else { format!("{of} {what}s") }
}

/// Returns the commands that end the refusal. A branch without images has no rows to choose from: a
/// saga's step is corrected by hand or retried, and other branches are called once more or counted
/// as rolled back.
fn resolutions(xid: &str, branch: &Branch, refusal: &Refusal) -> String {
    let events = |fate: fn(&HeldEvents) -> EventFate| {
        let held = refusal.events.filter(|events| events.held > 0);
        held.map_or(String::new(), |events| match fate(&events) {
            EventFate::Dropped => "; held events are dropped".to_owned(),
            EventFate::Released => "; held events are sent".to_owned(),
        })
    };
    let answers = match branch.mode {
        Mode::Saga => vec![("accept_current", "it has been put right by hand".to_owned())],
        Mode::At if branch.resource.starts_with(JDBC) => vec![
            ("accept_current", "count it as rolled back: its client is asked nothing".to_owned()),
            ("force_before", "ask its client to roll back once more".to_owned()),
        ],
        Mode::At => vec![
            (
                "restore_clean",
                "put back clean rows, leave dirty ones (the default)".to_owned()
                    + &events(|it| it.on_restore_clean),
            ),
            (
                "accept_current",
                "leave every row as it is".to_owned() + &events(|it| it.on_accept_current),
            ),
            (
                "force_before",
                "write the before image over every row".to_owned()
                    + &events(|it| it.on_force_before),
            ),
        ],
        Mode::Tcc | Mode::Xa | Mode::TwoPhase => vec![
            ("accept_current", "count it as rolled back".to_owned()),
            ("force_before", "ask for its rollback once more".to_owned()),
        ],
    };
    let line = |(answer, meaning): &(&str, String)| {
        format!("handfast tx resolve {xid} {} {answer:<14}   # {meaning}", branch.id)
    };
    answers.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn dirty_row(row: &DirtyRow, style: Style) -> String {
    let mut table = table(style, &["COLUMN", "BEFORE", "AFTER", "CURRENT"]);
    for column in &row.columns {
        let [before, after, current] =
            [&column.before, &column.after, &column.current].map(|cell| value(cell.as_deref()));
        add_row(&mut table, [&column.name, before, after, current]);
    }
    let missing = row.columns.iter().all(|column| column.current.is_none());
    let gone = !row.columns.is_empty() && missing;
    let gone = if gone { " (the row is gone)" } else { "" };
    let standing = match row.standing {
        RowStanding::Dirty => "dirty",
        RowStanding::Clean => "clean",
        RowStanding::Restored => "back already",
    };
    let name = format!("{} {}", printable(&row.table), printable(&row.key));
    format!("{name}: {standing}{gone}\n{}\n{}\n", text(&table), effects(row))
}

/// Returns the effect of each resolution on the row.
fn effects(row: &DirtyRow) -> String {
    let effects = [
        ("restore_clean", row.on_restore_clean),
        ("accept_current", Some(row.on_accept_current)),
        ("force_before", row.on_force_before),
    ];
    let known = effects.into_iter().filter_map(|(answer, change)| {
        let does = match change? {
            RowChange::Left => "leaves it",
            RowChange::WrittenBack => "writes BEFORE over it",
            RowChange::Removed => "removes it",
            RowChange::Inserted => "inserts it again",
        };
        Some(format!("{answer} {does}"))
    });
    known.collect::<Vec<_>>().join(", ") + "\n"
}

/// Returns the text of a value. The brackets distinguish a missing value from text.
fn value(cell: Option<&str>) -> &str {
    cell.unwrap_or("<null>")
}
