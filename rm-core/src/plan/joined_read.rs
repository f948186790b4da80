//! Reads of several tables, and of groups of rows, whose rows are locked globally.
//!
//! The key texts of each locked table ride behind the columns of the read. Where a row of the
//! result stands for several rows, they are read and locked first, by a query of their own. On
//! MySQL both reads see the newest rows, and gap locks keep others from coming in between; SQLite
//! has one writer. PostgreSQL has no such read, and refuses to lock the rows of one.

use sqlparser::{
    ast::{JoinOperator, LockType, Query as Tree, Select, SetExpr, TableFactor, TableWithJoins},
    keywords::Keyword,
};

use super::{
    Arguments, Dialect, JoinedRead as JoinedReadPlan, LockMode, Plan, Query, ReadPart,
    StatementRefusal, Table, TableKind, TableName,
    clauses::misread,
    guard::{self, Reach},
    image,
    joined::sources::{Sources, last},
    locking_read as single, names, placeholder,
    text::Text,
};

const HEIRS: &str = "it joins a table with inheritance children; read the rows of each table by \
                     itself, FROM ONLY such a table";

/// A read that is understood but not planned yet.
#[derive(Clone, Debug)]
pub(super) struct JoinedRead {
    /// The tables whose rows are locked, with the names of their rows.
    locked: Vec<Locked>,
    tables: Vec<TableName>,
    /// A row of the result stands for several rows.
    groups: bool,
    /// The lock clause is the library's own.
    committed: bool,
}

#[derive(Clone, Debug)]
struct Locked {
    table: usize,
    row: String,
    mode: LockMode,
}

impl JoinedRead {
    /// A read that is not of one table, or the refusal of such a read. `count` is how many tables
    /// it names anywhere.
    pub(super) fn of(
        dialect: Dialect,
        tree: &Tree,
        mode: LockMode,
        count: usize,
        refusal: StatementRefusal,
    ) -> Result<Self, StatementRefusal> {
        let SetExpr::Select(select) = &*tree.body else { return Err(refusal) };
        let Ok(sources) = Sources::of(dialect, &select.from, tree.with.as_ref()) else {
            return Err(refusal);
        };
        let groups = single::groups(select);
        let window = dialect == Dialect::Postgres && single::projects(select, single::is_window);
        if dialect == Dialect::Postgres && groups || window || select.into.is_some() {
            return Err(refusal);
        }
        let committed = mode == LockMode::Committed;
        if committed {
            checkable(dialect, select, &sources, count)?;
        }
        let mut read = Self { locked: Vec::new(), tables: Vec::new(), groups, committed };
        for (place, source) in sources.items.iter().enumerate() {
            let Some(mode) = lock_of(dialect, tree, &sources, place, mode)? else { continue };
            match &source.table {
                Some(table) => read.add(table, &source.row, mode),
                None if is_query_of_with(select, place) => {}
                // Locks reach into sub-selects, whose rows have no names here.
                None => return Err(refusal),
            }
        }
        if read.locked.is_empty() { Err(refusal) } else { Ok(read) }
    }

    fn add(&mut self, table: &TableName, row: &str, mode: LockMode) {
        let place = self.tables.iter().position(|known| known == table);
        let place = place.unwrap_or(self.tables.len());
        if place == self.tables.len() {
            self.tables.push(table.clone());
        }
        self.locked.push(Locked { table: place, row: row.to_owned(), mode });
    }

    /// The tables whose rows are locked.
    pub(super) fn tables(&self) -> &[TableName] {
        &self.tables
    }

    /// Plans the read; `tables` are those of [`JoinedRead::tables`].
    pub(super) fn plan(&self, text: &Text, tables: &[&Table]) -> Result<Plan, StatementRefusal> {
        let (mut parts, mut lists) = (Vec::new(), Vec::new());
        for locked in &self.locked {
            let table = *tables.get(locked.table).ok_or_else(misread)?;
            if table.kind == TableKind::Inherited {
                return Err(StatementRefusal::LockingRead { reason: HEIRS });
            }
            guard::nameable(table, Reach::Heirs)?;
            lists.push(image::key_list_of(text.dialect, table, &format!("{}.", locked.row)));
            let key_columns = table.key.columns.len();
            parts.push(ReadPart { table: locked.table, key_columns, mode: locked.mode });
        }
        let first = *tables.first().ok_or_else(misread)?;
        let keys = lists.join(", ");
        let select = text.find(0, &[Keyword::SELECT]).ok_or_else(misread)?;
        let from = single::projection_end(text, select).ok_or_else(misread)?;
        let mark = image::mark(text.whole(), first);
        let lock =
            if self.committed { single::lock(text.dialect, LockMode::Committed) } else { "" };
        let end = single::end(text, from);
        let rest = format!("{}{lock}{mark}", text.cut(from..end));
        let (keys, own) = if self.groups {
            let read = self.keys_first(text, select, from, &keys)?;
            let own = format!("{} {rest}", text.cut(0..from));
            (Some(bound(format!("{read}{mark}"))), own)
        } else {
            (None, format!("{}, {keys} {rest}", text.cut(0..from)))
        };
        let needs_gap_locks = self.groups && text.dialect == Dialect::MySql;
        Ok(Plan::JoinedRead(JoinedReadPlan { keys, query: bound(own), parts, needs_gap_locks }))
    }

    /// Reads the key texts of all rows that the groups are made of.
    fn keys_first(
        &self,
        text: &Text,
        select: usize,
        from: usize,
        keys: &str,
    ) -> Result<String, StatementRefusal> {
        const ENDS: [Keyword; 8] = [
            Keyword::GROUP,
            Keyword::HAVING,
            Keyword::ORDER,
            Keyword::LIMIT,
            Keyword::FETCH,
            Keyword::FOR,
            Keyword::LOCK,
            Keyword::WINDOW,
        ];
        let end = text.find(from, &ENDS).unwrap_or(text.end());
        let exclusive = self.locked.iter().any(|locked| locked.mode == LockMode::Exclusive);
        let lock = match (text.dialect, exclusive) {
            (Dialect::Sqlite, _) => "",
            (_, true) => " FOR UPDATE",
            (_, false) => " LOCK IN SHARE MODE",
        };
        let place = text.find(from, &[Keyword::WHERE]).filter(|place| *place < end);
        let swallow = |tokens| placeholder::swallow(text.dialect, text.arguments(tokens).len());
        let mut list = vec![keys.to_owned()];
        list.extend(swallow(select..from));
        let mut terms: Vec<String> =
            place.map(|place| format!("({})", text.cut(place + 1..end))).into_iter().collect();
        terms.extend(swallow(end..text.end()));
        let filter = if terms.is_empty() {
            String::new()
        } else {
            format!(" WHERE {}", terms.join(" AND "))
        };
        let with = text.cut(0..select);
        let space = if with.is_empty() { "" } else { " " };
        let items = text.cut(from..place.unwrap_or(end));
        Ok(format!("{with}{space}SELECT {} {items}{filter}{lock}", list.join(", ")))
    }
}

fn bound(text: String) -> Query {
    Query { text, arguments: Arguments::AsBound }
}

/// Refuses a globally committed read of which some rows would go unchecked.
fn checkable(
    dialect: Dialect,
    select: &Select,
    sources: &Sources,
    count: usize,
) -> Result<(), StatementRefusal> {
    let tables = sources.items.iter().filter(|source| source.table.is_some()).count();
    if count > tables {
        return Err(StatementRefusal::LockingRead {
            reason: "a sub-select reads a table unchecked; read the rows of each table by itself",
        });
    }
    if dialect == Dialect::Postgres && select.from.iter().any(is_outer) {
        return Err(StatementRefusal::LockingRead {
            reason: "the database locks no rows of an outer join; read the rows of each table by \
                     itself",
        });
    }
    Ok(())
}

fn is_outer(item: &TableWithJoins) -> bool {
    let inner = |operator: &JoinOperator| {
        matches!(
            operator,
            JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
        )
    };
    let nested = |factor: &TableFactor| {
        matches!(factor, TableFactor::NestedJoin { table_with_joins, .. }
            if is_outer(table_with_joins))
    };
    nested(&item.relation)
        || item.joins.iter().any(|join| !inner(&join.join_operator) || nested(&join.relation))
}

/// Returns how a source is locked, if it is.
fn lock_of(
    dialect: Dialect,
    tree: &Tree,
    sources: &Sources,
    place: usize,
    mode: LockMode,
) -> Result<Option<LockMode>, StatementRefusal> {
    if mode == LockMode::Committed {
        return Ok(Some(mode));
    }
    let mut found = None;
    for lock in &tree.locks {
        let named = match &lock.of {
            None => true,
            Some(of) => {
                let row = last(of).ok_or_else(misread)?;
                let of = sources.named(&names::folded(dialect, row)).ok_or_else(misread)?;
                of == place
            }
        };
        if !named {
            continue;
        }
        found = match (&lock.lock_type, found) {
            (LockType::Update, _) | (_, Some(LockMode::Exclusive)) => Some(LockMode::Exclusive),
            (LockType::Share, _) => Some(LockMode::Shared),
        };
    }
    Ok(found)
}

/// Returns whether a source is a query of the statement's WITH, whose rows no lock reaches.
fn is_query_of_with(select: &Select, place: usize) -> bool {
    fn factors<'a>(item: &'a TableWithJoins, found: &mut Vec<&'a TableFactor>) {
        for factor in std::iter::once(&item.relation).chain(item.joins.iter().map(|j| &j.relation))
        {
            if let TableFactor::NestedJoin { table_with_joins, .. } = factor {
                factors(table_with_joins, found);
            } else {
                found.push(factor);
            }
        }
    }
    let mut found = Vec::new();
    select.from.iter().for_each(|item| factors(item, &mut found));
    // A table without a description of its own is one, since functions have arguments.
    matches!(found.get(place), Some(TableFactor::Table { args: None, .. }))
}
