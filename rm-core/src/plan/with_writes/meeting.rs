//! Writes of one table in one statement: whether they may meet in a row or in a unique value.
//!
//! PostgreSQL runs the statement behind WITH first, and then the queries of WITH that it has not
//! read, the last one first. The statement with images runs them in that order too. A unique value
//! that one write frees or takes is then there for the others as without images, or the statement
//! fails as it would fail.
//!
//! The order would also decide which of two writes has a row that both choose. A write reads what
//! it reads when it is its turn, though, so that the order is not always known. So the statement
//! itself tells whether the sets of rows that two writes choose by its snapshot have a row in
//! common: if not, neither has kept the other from a row. What ON CONFLICT does with a row depends
//! on unique values, which no other write beside it may give or take without meeting the row.

use std::collections::BTreeSet;

use super::super::{StatementRefusal, Table, TableKind, WithPartKind};
use super::imaged::Imaged;
use super::part::{OnConflict, Part, refused};

/// The writes that share a table with another one.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    /// Whether there are any.
    pub(super) shared: bool,
    /// Pairs of writes that may meet in a row, by their places among the writes.
    pub(super) pairs: Vec<(usize, usize)>,
}

/// The effect of the order of two writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meeting {
    /// Nothing, as long as they do run in the order of the database.
    Never,
    /// Which of them has a row, if they choose the same.
    InRows,
    /// More than can be known.
    Unknown,
}

impl Meetings {
    /// Looks at each two of `writes`; refuses those of which more than their rows may depend on the
    /// order. `parts` are all parts of the statement.
    pub(super) fn of(writes: &[Imaged<'_>], parts: &[Part]) -> Result<Self, StatementRefusal> {
        let mut meetings = Self::default();
        for (at, write) in writes.iter().enumerate() {
            for (before, earlier) in writes[..at].iter().enumerate() {
                if !share_rows(earlier.table, write.table) {
                    continue;
                }
                meetings.shared = true;
                match meeting(earlier, write, parts) {
                    Meeting::Never => {}
                    Meeting::InRows => meetings.pairs.push((before, at)),
                    Meeting::Unknown => {
                        return Err(refused(
                            "two of its writes may meet in one row or one unique value of a \
                             table, and the order in which they run is not known; execute each as \
                             a statement of its own",
                        ));
                    }
                }
            }
        }
        Ok(meetings)
    }

    /// The queries of WITH that give the keys which the writes of the pairs choose.
    pub(super) fn keys(&self, writes: &[Imaged<'_>]) -> Result<Vec<String>, StatementRefusal> {
        let places: BTreeSet<usize> =
            self.pairs.iter().flat_map(|(one, other)| [*one, *other]).collect();
        let query = |place: usize| {
            let write = &writes[place];
            let keys = write.chosen_keys()?.ok_or_else(|| {
                refused(
                    "two of its writes may meet in one row, and one chooses its rows in a way that \
                     cannot be asked again; execute each as a statement of its own",
                )
            })?;
            Ok(format!("hf_k{} AS MATERIALIZED ({keys})", write.number))
        };
        places.into_iter().map(query).collect()
    }

    /// Whether some pair has a key in common, as a column of the answer.
    pub(super) fn flag(&self, writes: &[Imaged<'_>]) -> Option<String> {
        let common = |(one, other): &(usize, usize)| {
            let (one, other) = (&writes[*one], &writes[*other]);
            let (left, right, keys) = (one.number, other.number, one.key_names().join(", "));
            format!("EXISTS (SELECT 1 FROM hf_k{left} JOIN hf_k{right} USING ({keys}))")
        };
        let all: Vec<String> = self.pairs.iter().map(common).collect();
        (!all.is_empty()).then(|| format!("({}) AS hf_met", all.join(" OR ")))
    }
}

/// Returns whether a row may be one of both: of the same table, or of a partition and the whole.
fn share_rows(one: &Table, other: &Table) -> bool {
    let names = |table: &Table| -> BTreeSet<String> {
        table.columns.iter().map(|column| column.name.clone()).collect()
    };
    let whole = [one, other].iter().any(|table| table.kind == TableKind::Partitioned);
    is_same(one, other) || whole && names(one) == names(other)
}

fn is_same(one: &Table, other: &Table) -> bool {
    (&one.schema, &one.name) == (&other.schema, &other.name)
}

fn meeting(one: &Imaged<'_>, other: &Imaged<'_>, parts: &[Part]) -> Meeting {
    let both = [one, other];
    // Which rows ON CONFLICT DO NOTHING leaves out, nothing tells.
    if both.iter().any(|write| is_insert(write) && !is_plain_insert(write)) {
        return Meeting::Unknown;
    }
    let inserts = both.iter().filter(|write| is_plain_insert(write)).count();
    let upserts = both.iter().filter(|write| is_upsert(write)).count();
    let givers = both.iter().filter(|write| gives_values(write)).count();
    // Rows that have exchanged their values are put back one UPDATE after the other.
    let movers = both.iter().filter(|write| moves_values(write)).count();
    let known = match (inserts, upserts) {
        (2, 0) => true,
        // A row that is inserted is in no snapshot.
        (1, 0) => givers == 0 || is_same(one.table, other.table),
        (0, 0) => is_same(one.table, other.table) && (movers < 2 || are_unread(both, parts)),
        (0, 1) => is_same(one.table, other.table) && movers == 0,
        _ => false,
    };
    match (known, inserts) {
        (false, _) => Meeting::Unknown,
        (true, 0) => Meeting::InRows,
        (true, _) => Meeting::Never,
    }
}

/// Returns whether no part reads what either of the writes returns. Each then runs to its end by
/// itself, and their order is known.
fn are_unread(both: [&Imaged<'_>; 2], parts: &[Part]) -> bool {
    let reads = |part: &Part| both.iter().any(|write| part.may_read(&parts[write.place]));
    !parts.iter().any(reads)
}

fn is_insert(write: &Imaged<'_>) -> bool {
    matches!(write.part.kind, WithPartKind::Insert { .. })
}

fn is_plain_insert(write: &Imaged<'_>) -> bool {
    is_insert(write) && write.write.on_conflict == OnConflict::Fail
}

fn is_upsert(write: &Imaged<'_>) -> bool {
    matches!(write.part.kind, WithPartKind::Upsert { .. })
}

/// Returns whether a write may free a unique value, of rows that are there before the statement.
fn gives_values(write: &Imaged<'_>) -> bool {
    matches!(write.part.kind, WithPartKind::Delete { .. }) || moves_values(write)
}

/// Returns whether an UPDATE may give a row another unique value.
fn moves_values(write: &Imaged<'_>) -> bool {
    let WithPartKind::Update { columns, .. } = &write.part.kind else { return false };
    let table = write.table;
    let assigned = |column: &usize| columns.contains(column) && !table.key.columns.contains(column);
    table.unique.iter().any(|index| !index.plain || index.columns.iter().any(assigned))
}
