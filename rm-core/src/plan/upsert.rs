//! INSERT that may change or remove rows that exist.
//!
//! Every row that the statement could meet is looked up first, by each unique index that matters,
//! under a lock: only a row that is then proved absent counts as inserted, and is deleted by the
//! undo.

use sqlparser::ast::{Assignment, ConflictTarget, Ident, Insert as Tree, TableObject};

use super::{
    Arguments, Dialect, ForeignKey, GeneratedKeys, InsertedMark, Plan, Query, ReferentialAction,
    StatementRefusal, Table, TableKind, UniqueIndex, Upsert, UpsertAfter, UpsertKind, along,
    constraint,
    guard::{self, Event, Reach},
    image::RowLock,
    inserted::{ByValues, may_hide},
    key_change, names,
    normal::{ConflictColumn, conflict_column},
    plain_insert::{self, Numbering},
    quote,
    text::Text,
    upsert_source::{self, NOT_PLAIN},
    values::{Offer, Offered, offer, offered},
};

/// The effect of an INSERT on a row that conflicts with an existing one.
#[derive(Debug)]
pub(super) enum Conflict<'a> {
    /// Fails as a whole.
    Fail,
    /// Skips the row.
    Ignore,
    /// Updates the row that exists.
    Update { target: Option<&'a ConflictTarget>, assignments: &'a [Assignment] },
    /// Removes the rows that exist.
    Replace,
}

/// Plans an upsert.
pub(super) fn plan(
    text: &Text,
    tree: &Tree,
    table: &Table,
    conflict: &Conflict<'_>,
) -> Result<Plan, StatementRefusal> {
    let (kind, respelt) = permitted(text, tree, table, conflict)?;
    if text.dialect == Dialect::Postgres
        && let Conflict::Update { target: Some(target), .. } = conflict
        && let Some(plan) = by_source(text, tree, table, conflict, target, &respelt)?
    {
        return Ok(plan);
    }
    let Some(offered) = offered(text, tree, table)? else {
        return Err(StatementRefusal::Upsert {
            reason: "its rows come from a query; select them first and insert them with VALUES",
        });
    };
    let indexes = arbiters(text.dialect, table, conflict)?;
    independent(text, table, conflict, &offered)?;
    unnumbered(text, table, &indexes, kind, &offered)?;
    let columns = table.imaged();
    let verdict = verdict(text, table, conflict, &respelt)?;
    let probes = probes(text, table, &indexes, &offered, &columns, &verdict)?;
    if probes.is_empty() {
        // No row offered can conflict with an existing one.
        return if text.dialect.returns_rows() || tree.returning.is_some() {
            plain_insert::returned(text, tree, table)
        } else {
            plain_insert::keyed(text, tree, table)
        };
    }
    let returned = text.dialect.returns_rows();
    if !returned {
        findable(text, table, &indexes, &offered)?;
    }
    let change =
        if returned { returning(text, tree, table, &columns, kind)? } else { as_written(text) };
    let after = if returned {
        let may_be_gone = kind == UpsertKind::Replace && offered.rows.len() > 1;
        UpsertAfter::Returned { mark: mark(text.dialect, table, kind), may_be_gone }
    } else {
        let found = found(text, table, &indexes, &offered);
        let may_hide = !found.is_empty() && may_hide(text, table, &indexes, &offered);
        let generated = generated(text, table, &offered, &columns);
        UpsertAfter::Probed { found, may_hide, generated }
    };
    let rows = Some(offered.rows.len());
    let conditional = offered.conditional;
    let needs_gap_locks = text.dialect == Dialect::MySql;
    let user_returning = tree.returning.is_some();
    Ok(Plan::Upsert(Upsert {
        columns,
        kind,
        probes,
        judged: !verdict.is_empty(),
        change,
        after,
        rows,
        conditional,
        acts: kind == UpsertKind::Replace && table.acting_on_delete().next().is_some(),
        user_returning,
        needs_gap_locks,
        assigns_key: !respelt.is_empty(),
        key_obstacle: key_change::obstacle(table, &respelt),
    }))
}

/// Plans an upsert on PostgreSQL whose rows are met by all that it offers at once, if it is one.
fn by_source(
    text: &Text,
    tree: &Tree,
    table: &Table,
    conflict: &Conflict<'_>,
    target: &ConflictTarget,
    respelt: &[usize],
) -> Result<Option<Plan>, StatementRefusal> {
    let columns = table.imaged();
    let verdict = verdict(text, table, conflict, respelt)?;
    let probe = upsert_source::probe(text, tree, table, target, &columns, &verdict)?;
    let Some(probe) = probe else { return Ok(None) };
    let change = returning(text, tree, table, &columns, UpsertKind::Update)?;
    Ok(Some(Plan::Upsert(Upsert {
        columns,
        kind: UpsertKind::Update,
        probes: vec![probe],
        judged: !verdict.is_empty(),
        change,
        after: UpsertAfter::Returned {
            mark: mark(text.dialect, table, UpsertKind::Update),
            may_be_gone: false,
        },
        rows: None,
        conditional: false,
        acts: false,
        user_returning: tree.returning.is_some(),
        needs_gap_locks: false,
        assigns_key: !respelt.is_empty(),
        key_obstacle: key_change::obstacle(table, respelt),
    })))
}

/// Returns the condition that marks an existing row that could not be put back.
fn verdict(
    text: &Text,
    table: &Table,
    conflict: &Conflict<'_>,
    respelt: &[usize],
) -> Result<String, StatementRefusal> {
    let constraints = match conflict {
        Conflict::Fail | Conflict::Ignore => Vec::new(),
        // The undo may have to insert the row again.
        Conflict::Update { .. } if !respelt.is_empty() => constraint::of_whole_rows(table),
        Conflict::Update { assignments, .. } => {
            let mut changed = names::assigned(text.dialect, table, assignments)?;
            if guard::own_row_triggers(table, &[Event::Insert, Event::Update]) {
                changed = table.stored();
            }
            constraint::of_upsert(table, &changed)
        }
        Conflict::Replace => constraint::of_whole_rows(table),
    };
    let row = quote::identifier(text.dialect, &table.name);
    Ok(constraint::verdict(text.dialect, table, &row, &constraints))
}

/// Refuses an upsert that would change other rows or the key of the existing row. Returns the key
/// columns that it may spell otherwise, too.
fn permitted(
    text: &Text,
    tree: &Tree,
    table: &Table,
    conflict: &Conflict<'_>,
) -> Result<(UpsertKind, Vec<usize>), StatementRefusal> {
    match conflict {
        Conflict::Fail | Conflict::Ignore => Ok((UpsertKind::Ignore, Vec::new())),
        Conflict::Update { assignments, .. } => {
            guard::writable(table, Reach::Own, &[Event::Insert, Event::Update])?;
            guard::fills_in_no_unique(table)?;
            let mut assigned = names::assigned(text.dialect, table, assignments)?;
            let assigns_key = assigned.iter().any(|index| table.key.columns.contains(index));
            let equal = match assigns_key {
                true => equal_columns(text.dialect, table, conflict)?,
                false => Vec::new(),
            };
            let own = row_name(tree);
            let respelt = key_change::by_upsert(text.dialect, table, own, &equal, assignments)?;
            assigned.retain(|index| !table.key.columns.contains(index) || respelt.contains(index));
            guard::assignable(table, &assigned)?;
            check_markable(table)?;
            Ok((UpsertKind::Update, respelt))
        }
        Conflict::Replace => {
            guard::writable(table, Reach::Own, &[Event::Insert, Event::Update, Event::Delete])?;
            guard::fills_in_no_unique(table)?;
            check_replaceable(text.dialect, table)?;
            Ok((UpsertKind::Replace, Vec::new()))
        }
    }
}

/// The name of the row that exists in the expressions of the update part.
fn row_name(tree: &Tree) -> Option<&Ident> {
    let TableObject::TableName(name) = &tree.table else { return None };
    let last = || name.0.last().and_then(|part| part.as_ident());
    tree.table_alias.as_ref().map(|alias| &alias.alias).or_else(last)
}

/// Returns the key columns in which an offered row is equal to every row that it can meet.
fn equal_columns(
    dialect: Dialect,
    table: &Table,
    conflict: &Conflict<'_>,
) -> Result<Vec<usize>, StatementRefusal> {
    let met_by = arbiters(dialect, table, conflict)?;
    // On SQLite an index on the same column may hold more values for equal than the key does.
    let as_key = |index: &UniqueIndex, column: usize| {
        let (own, key) = (index.collation(column), table.key.collation(column));
        own.map(str::to_ascii_uppercase) == key.map(str::to_ascii_uppercase)
    };
    let in_all = |column: &usize| {
        met_by.iter().all(|index| index.columns.contains(column) && as_key(index, *column))
    };
    Ok(table.key.columns.iter().copied().filter(in_all).collect())
}

/// Refuses a REPLACE that SQLite lets break a foreign key: it does not check the references of a
/// table to itself where the key says SET NULL (seen with 3.40 and later).
fn check_replaceable(dialect: Dialect, table: &Table) -> Result<(), StatementRefusal> {
    let unchecked = |key: &&ForeignKey| {
        key.on_delete == ReferentialAction::Reset && !key.own_columns.is_empty()
    };
    let found = table.referenced_by.iter().find(unchecked);
    match found.filter(|_| dialect == Dialect::Sqlite) {
        Some(key) => Err(StatementRefusal::CascadeLimit {
            constraint: key.name.clone(),
            reason: along::reason::UNCHECKED,
        }),
        None => Ok(()),
    }
}

/// Refuses DO UPDATE on a partitioned table that refers to itself. Its rows are read after the
/// statement, when the check of the foreign key has locked those that others refer to: an inserted
/// one of them looks like one that was updated.
fn check_markable(table: &Table) -> Result<(), StatementRefusal> {
    let refers_to_itself = table.referenced_by.iter().any(|key| key.referring.own);
    if table.kind == TableKind::Partitioned && refers_to_itself {
        return Err(StatementRefusal::Upsert {
            reason: "the table is partitioned and refers to itself; name the partition, or write \
                     UPDATE and INSERT",
        });
    }
    Ok(())
}

fn mark(dialect: Dialect, table: &Table, kind: UpsertKind) -> InsertedMark {
    match (dialect, kind) {
        (Dialect::Postgres, UpsertKind::Update) if table.kind == TableKind::Partitioned => {
            InsertedMark::Read
        }
        (Dialect::Postgres, UpsertKind::Update) => InsertedMark::Returned,
        // SQLite has one writer, so that no row comes between the probe and the upsert.
        (Dialect::Postgres | Dialect::MySql | Dialect::Sqlite, _) => InsertedMark::None,
    }
}

/// Refuses an update part that changes unique columns: it could hide a row that the same statement
/// inserts from the read that looks for it.
fn independent(
    text: &Text,
    table: &Table,
    conflict: &Conflict<'_>,
    offered: &Offered<'_>,
) -> Result<(), StatementRefusal> {
    let Conflict::Update { assignments, .. } = conflict else { return Ok(()) };
    let assigned = names::assigned(text.dialect, table, assignments)?;
    let unique = |index: &UniqueIndex| index.columns.iter().any(|c| assigned.contains(c));
    let hides = text.dialect == Dialect::MySql && offered.rows.len() > 1;
    if hides && table.unique.iter().any(unique) {
        return Err(StatementRefusal::Upsert {
            reason: "it offers several rows and assigns a unique column; insert them one by one",
        });
    }
    Ok(())
}

/// Refuses DO UPDATE by a generated number: a PostgreSQL sequence may give a number that a row has
/// already, which no probe could look up before. The other databases never give a number twice.
fn unnumbered(
    text: &Text,
    table: &Table,
    indexes: &[&UniqueIndex],
    kind: UpsertKind,
    offered: &Offered<'_>,
) -> Result<(), StatementRefusal> {
    if text.dialect != Dialect::Postgres || kind != UpsertKind::Update {
        return Ok(());
    }
    let numbered = indexes.iter().flat_map(|index| &index.columns).find(|&&column| {
        offered.rows.iter().any(|row| offer(text, table, row, column) == Offer::Generated)
    });
    match numbered {
        Some(&column) => Err(StatementRefusal::KeyUnknown {
            column: table.columns[column].name.clone(),
            reason: "the conflict is by a number that the database gives; give it, or insert \
                     without ON CONFLICT",
        }),
        None => Ok(()),
    }
}

/// Returns the unique indexes in which a row can conflict with an existing one.
fn arbiters<'a>(
    dialect: Dialect,
    table: &'a Table,
    conflict: &Conflict<'_>,
) -> Result<Vec<&'a UniqueIndex>, StatementRefusal> {
    if let Conflict::Update { target: Some(target), .. } = conflict {
        return named(dialect, table, target);
    }
    let all: Vec<_> = std::iter::once(&table.key).chain(&table.unique).collect();
    match all.iter().find(|index| !index.plain) {
        Some(odd) => {
            Err(StatementRefusal::UpsertIndex { index: odd.name.clone(), reason: NOT_PLAIN })
        }
        None => Ok(all),
    }
}

/// The indexes that an `ON CONFLICT` names: several may be on the same columns, under other
/// collations.
fn named<'a>(
    dialect: Dialect,
    table: &'a Table,
    target: &ConflictTarget,
) -> Result<Vec<&'a UniqueIndex>, StatementRefusal> {
    let all = std::iter::once(&table.key).chain(&table.unique);
    let found: Vec<_> = match target {
        ConflictTarget::Columns(names) => {
            let (wanted, predicate) = target_columns(dialect, table, names)?;
            // An index with a predicate has no row that the columns do not find.
            let fits = |index: &&UniqueIndex| predicate || index.plain;
            all.filter(fits).filter(|index| sorted(&index.columns) == wanted).collect()
        }
        ConflictTarget::OnConstraint(constraint) => {
            let constraint = names::table(dialect, constraint)?.name;
            all.filter(|index| index.plain && index.name == constraint).collect()
        }
    };
    if found.is_empty() {
        return Err(StatementRefusal::UpsertIndex {
            // What stands for a predicate has no text.
            index: target.to_string().replace(", \"\0\"", "").trim().to_owned(),
            reason: "it names no unique index on whole columns of the table; name one by its \
                     columns",
        });
    }
    Ok(found)
}

/// Returns the columns of a target, sorted, and whether a predicate follows them.
fn target_columns(
    dialect: Dialect,
    table: &Table,
    target: &[Ident],
) -> Result<(Vec<usize>, bool), StatementRefusal> {
    let (mut columns, mut predicate) = (Vec::new(), false);
    for item in target {
        match conflict_column(item) {
            ConflictColumn::Name(name) => columns.push(names::column(dialect, table, name)?),
            ConflictColumn::Predicate => predicate = true,
            ConflictColumn::Expression(text) => {
                let index = format!("({text})");
                return Err(StatementRefusal::UpsertIndex { index, reason: NOT_PLAIN });
            }
        }
    }
    columns.sort_unstable();
    Ok((columns, predicate))
}

fn sorted(columns: &[usize]) -> Vec<usize> {
    let mut columns = columns.to_vec();
    columns.sort_unstable();
    columns
}

/// Returns a locking read for each index in which some row can have an equal.
fn probes(
    text: &Text,
    table: &Table,
    indexes: &[&UniqueIndex],
    offered: &Offered<'_>,
    columns: &[usize],
    verdict: &str,
) -> Result<Vec<Query>, StatementRefusal> {
    let lock = RowLock::Update.clause(text.dialect);
    let mut probes = Vec::new();
    for &by in indexes {
        for (row, &column) in
            offered.rows.iter().flat_map(|row| by.columns.iter().map(move |c| (row, c)))
        {
            if offer(text, table, row, column) == Offer::Unknown {
                return Err(StatementRefusal::KeyUnknown {
                    column: table.columns[column].name.clone(),
                    reason: "what the row offers is not known before; compute it and bind it",
                });
            }
        }
        let read = ByValues { text, table, offered, by, columns, lock, number: None };
        probes.extend(read.judged(verdict));
    }
    Ok(probes)
}

/// Returns the queries that tell rows offered twice from rows that no probe finds. Only several
/// rows need them.
fn found(
    text: &Text,
    table: &Table,
    indexes: &[&UniqueIndex],
    offered: &Offered<'_>,
) -> Vec<Query> {
    if offered.rows.len() < 2 {
        return Vec::new();
    }
    let by = |&by| ByValues { text, table, offered, by, columns: &[], lock: "", number: None };
    indexes.iter().map(by).map(|read| read.found()).collect()
}

/// Refuses several rows if one cannot be found again by its own values: a number that the database
/// generates is known only for a single row.
fn findable(
    text: &Text,
    table: &Table,
    indexes: &[&UniqueIndex],
    offered: &Offered<'_>,
) -> Result<(), StatementRefusal> {
    if offered.rows.len() < 2 {
        return Ok(());
    }
    let lost = offered.rows.iter().any(|row| {
        let reads =
            |&by| ByValues { text, table, offered, by, columns: &[], lock: "", number: None };
        !indexes.iter().map(reads).any(|read| read.is_comparable(row))
    });
    if lost {
        return Err(StatementRefusal::KeyUnknown {
            column: table.columns[table.key.columns[0]].name.clone(),
            reason: "one of several rows offers no value of a unique index; insert them one by one",
        });
    }
    Ok(())
}

fn as_written(text: &Text) -> Query {
    Query { text: text.whole().to_owned(), arguments: Arguments::AsBound }
}

fn returning(
    text: &Text,
    tree: &Tree,
    table: &Table,
    columns: &[usize],
    kind: UpsertKind,
) -> Result<Query, StatementRefusal> {
    // A row version that an INSERT wrote has no deleter; one that DO UPDATE wrote has the locker of
    // the version before it.
    let flag = match mark(text.dialect, table, kind) {
        InsertedMark::Returned => ", (xmax = 0) AS hf_inserted",
        InsertedMark::None | InsertedMark::Read => "",
    };
    plain_insert::returning(text, tree, table, columns, flag)
}

/// Returns how to find the one row of a statement if all its unique values turn out to be NULL.
fn generated(
    text: &Text,
    table: &Table,
    offered: &Offered<'_>,
    columns: &[usize],
) -> Option<GeneratedKeys> {
    let [_] = offered.rows.as_slice() else { return None };
    let read = ByValues { text, table, offered, by: &table.key, columns, lock: "", number: None };
    match plain_insert::numbering(text, table, offered).ok()? {
        Numbering::Never => None,
        Numbering::IfNull(column) | Numbering::Always(column) => {
            Some(read.generated(column, false))
        }
    }
}
