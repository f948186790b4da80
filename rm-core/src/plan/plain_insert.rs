//! INSERT of one table that changes no row that exists.

use sqlparser::{ast::Insert as Tree, keywords::Keyword};

use super::{
    Arguments, Insert, InsertAfter, Plan, Query, StatementRefusal, Table,
    clauses::misread,
    image,
    inserted::ByValues,
    text::Text,
    values::{Offer, Offered, offer, offered},
};

/// Plans an INSERT of which the database returns the rows that it added.
pub(super) fn returned(text: &Text, tree: &Tree, table: &Table) -> Result<Plan, StatementRefusal> {
    let columns = table.imaged();
    let change = returning(text, tree, table, &columns, "")?;
    let user_returning = tree.returning.is_some();
    Ok(Plan::Insert(Insert { columns, change, after: InsertAfter::Returned, user_returning }))
}

/// The user's INSERT with our columns behind its own, and `more` behind them.
pub(super) fn returning(
    text: &Text,
    tree: &Tree,
    table: &Table,
    columns: &[usize],
    more: &str,
) -> Result<Query, StatementRefusal> {
    let found = text.find(0, &[Keyword::RETURNING]);
    if found.is_some() != tree.returning.is_some() {
        return Err(misread());
    }
    let end = found.unwrap_or(text.end());
    let own = found.map(|at| text.cut(at + 1..text.end())).unwrap_or_default();
    let ours = image::returning(text, table, columns, &own);
    Ok(image::rewritten(text, table, end, &format!("{ours}{more}")))
}

/// Plans an INSERT on MySQL: the rows added are read back by their keys.
pub(super) fn keyed(text: &Text, tree: &Tree, table: &Table) -> Result<Plan, StatementRefusal> {
    let offered = offered(text, tree, table)?.ok_or_else(misread)?;
    let columns = table.imaged();
    let read = ByValues {
        number: None,
        text,
        table,
        offered: &offered,
        by: &table.key,
        columns: &columns,
        lock: "",
    };
    let by_values = |generated| {
        read.query().map(|query| InsertAfter::ByValues { query, generated }).ok_or_else(misread)
    };
    let after = match numbering(text, table, &offered)? {
        Numbering::Always(column) => InsertAfter::ByGenerated(read.generated(column, true)),
        Numbering::IfNull(column) => by_values(Some(read.generated(column, false)))?,
        Numbering::Never => by_values(None)?,
    };
    let change = Query { text: text.whole().to_owned(), arguments: Arguments::AsBound };
    Ok(Plan::Insert(Insert { columns, change, after, user_returning: false }))
}

/// Which rows get a number from the database, and in which key column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Numbering {
    /// Every row gives its whole key.
    Never,
    /// Every row gives its key, but bound NULL or 0 means a generated one.
    IfNull(usize),
    /// No row gives this column.
    Always(usize),
}

/// Returns where the keys of the offered rows come from.
pub(super) fn numbering(
    text: &Text,
    table: &Table,
    offered: &Offered<'_>,
) -> Result<Numbering, StatementRefusal> {
    let mut numbering = Numbering::Never;
    for &column in &table.key.columns {
        let offers: Vec<Offer> =
            offered.rows.iter().map(|row| offer(text, table, row, column)).collect();
        match one_kind(&offers) {
            Ok(Offer::Generated) => numbering = Numbering::Always(column),
            Ok(Offer::ValueOrGenerated(_)) => numbering = Numbering::IfNull(column),
            Ok(Offer::Value(_) | Offer::Default) => {}
            Ok(Offer::Null) => {
                return Err(StatementRefusal::KeyNull {
                    column: table.columns[column].name.clone(),
                });
            }
            Ok(Offer::Unknown) => return Err(unknown(table, column, UNKNOWN)),
            Err(reason) => return Err(unknown(table, column, reason)),
        }
    }
    Ok(numbering)
}

const UNKNOWN: &str =
    "its value is not known before the row is there; compute it first and bind it";
const MIXED: &str =
    "some rows give it and some leave it to the database; use one statement for each kind";

/// Returns the offer of all rows for a key column: the least certain of them.
fn one_kind(offers: &[Offer]) -> Result<Offer, &'static str> {
    let generated = offers.iter().filter(|offer| **offer == Offer::Generated).count();
    if generated > 0 && generated < offers.len() {
        return Err(MIXED);
    }
    let worst = offers.iter().max_by_key(|offer| match offer {
        Offer::Value(_) | Offer::Default => 0,
        Offer::ValueOrGenerated(_) => 1,
        Offer::Generated => 2,
        Offer::Null => 3,
        Offer::Unknown => 4,
    });
    worst.cloned().ok_or(UNKNOWN)
}

fn unknown(table: &Table, column: usize, reason: &'static str) -> StatementRefusal {
    StatementRefusal::KeyUnknown { column: table.columns[column].name.clone(), reason }
}
