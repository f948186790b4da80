//! UPDATE and DELETE that choose their rows by a join of several tables.
//!
//! The rows of each written table are imaged first, each once, however often the join shows it. The
//! change then names them by key, so that it changes no row without an image; that it has changed
//! as many shows that it met the same ones. PostgreSQL does both in one statement.

mod checks;
mod clauses;
mod delete;
mod images;
mod several;
pub(super) mod sources;
mod together;
mod update;

use std::ops::ControlFlow;

use sqlparser::ast::{
    Delete as DeleteTree, FromTable, ObjectName, TableFactor, TableWithJoins, Update as UpdateTree,
    UpdateTableFromKind, Visit, With,
};

use self::clauses::JoinedClauses;
use self::images::Written;
use self::sources::{Sources, assigned_names, last, qualifier};
use super::{
    Dialect, Plan, StatementRefusal, Table, TableName,
    clauses::misread,
    guard, names,
    text::Text,
    update as single,
    walk::{TreeVisitor, walk},
};

/// A change over several sources that is understood but not planned yet.
#[derive(Clone, Debug)]
pub(super) struct Joined {
    tree: Tree,
    with: Option<With>,
    sources: Sources,
    /// The tables whose descriptions the plan needs, each once.
    tables: Vec<TableName>,
}

#[derive(Clone, Debug)]
enum Tree {
    Update(Box<UpdateTree>),
    /// With the places of its targets among the sources.
    Delete(Box<DeleteTree>, Vec<usize>),
}

/// Returns whether an UPDATE has more than one source.
pub(super) fn is_joined_update(tree: &UpdateTree) -> bool {
    tree.from.is_some() || !tree.table.joins.is_empty()
}

/// Returns whether a DELETE has more than one source, or names its target apart from it.
pub(super) fn is_joined_delete(tree: &DeleteTree) -> bool {
    let from = from_items(tree);
    let joined = from.len() != 1 || from.iter().any(|item| !item.joins.is_empty());
    joined || tree.using.is_some() || !tree.tables.is_empty()
}

fn from_items(tree: &DeleteTree) -> &[TableWithJoins] {
    let (FromTable::WithFromKeyword(from) | FromTable::WithoutKeyword(from)) = &tree.from;
    from
}

impl Joined {
    /// An UPDATE, without knowing its tables.
    pub(super) fn update(
        dialect: Dialect,
        tree: UpdateTree,
        with: Option<With>,
    ) -> Result<Self, StatementRefusal> {
        single::no_clause_without_image(dialect, &tree)?;
        let mut items = vec![tree.table.clone()];
        match &tree.from {
            None => {}
            Some(UpdateTableFromKind::AfterSet(from)) => items.extend_from_slice(from),
            Some(UpdateTableFromKind::BeforeSet(_)) => return Err(misread()),
        }
        let is_mysql = dialect == Dialect::MySql;
        let misplaced = if is_mysql { tree.from.is_some() } else { !tree.table.joins.is_empty() };
        if misplaced || is_mysql && (!tree.order_by.is_empty() || tree.limit.is_some()) {
            return Err(misread());
        }
        let sources = Sources::of(dialect, &items, with.as_ref())?;
        let tables =
            if is_mysql { assigned_tables(&sources, &tree)? } else { vec![target(&sources)?] };
        Ok(Self { tree: Tree::Update(Box::new(tree)), with, sources, tables })
    }

    /// A DELETE, without knowing its tables.
    pub(super) fn delete(
        dialect: Dialect,
        tree: DeleteTree,
        with: Option<With>,
    ) -> Result<Self, StatementRefusal> {
        guard::no_returning(dialect, tree.returning.is_some())?;
        if !tree.order_by.is_empty() || tree.limit.is_some() {
            return Err(misread());
        }
        let (sources, targets) = match dialect {
            Dialect::Postgres if tree.tables.is_empty() => postgres_delete(&tree, with.as_ref())?,
            Dialect::MySql => mysql_delete(&tree, with.as_ref())?,
            Dialect::Postgres | Dialect::Sqlite => return Err(misread()),
        };
        let mut tables = Vec::new();
        for &place in &targets {
            add(&mut tables, sources.items[place].table.clone().ok_or_else(not_a_table)?);
        }
        Ok(Self { tree: Tree::Delete(Box::new(tree), targets), with, sources, tables })
    }

    /// Returns whether it reads anything but the written rows.
    pub(super) fn reads_others(&self) -> bool {
        let search = match &self.tree {
            Tree::Update(tree) => searched(&**tree),
            Tree::Delete(tree, _) => searched(&**tree),
        };
        search > 1 || self.with.is_some()
    }

    /// The tables whose descriptions [`Joined::plan`] needs.
    pub(super) fn tables(&self) -> &[TableName] {
        &self.tables
    }

    /// Plans the change; `tables` are those of [`Joined::tables`]. Returns the place of the table
    /// that the plan is about.
    pub(super) fn plan(
        &self,
        text: &Text,
        tables: &[&Table],
    ) -> Result<(usize, Plan), StatementRefusal> {
        let named: Vec<(TableName, &Table)> =
            self.tables.iter().cloned().zip(tables.iter().copied()).collect();
        match &self.tree {
            Tree::Update(tree) => update::plan(self, text, tree, &named),
            Tree::Delete(tree, targets) => delete::plan(self, text, tree, targets, &named),
        }
    }

    /// PostgreSQL: reads the keys of the rows that it chooses by the snapshot, each perhaps several
    /// times. `None`: asked again, it may choose others.
    pub(super) fn chosen_keys(
        &self,
        text: &Text,
        table: &Table,
    ) -> Result<Option<String>, StatementRefusal> {
        let row = self.sources.items.first().ok_or_else(misread)?.row.as_str();
        let (clauses, repeats) = match &self.tree {
            Tree::Update(tree) => (
                JoinedClauses::of_update(text, tree)?,
                checks::is_repeatable(text.dialect, self, tree),
            ),
            Tree::Delete(tree, _) => (
                JoinedClauses::of_delete(text, tree)?,
                checks::is_repeatable_delete(text.dialect, self, tree),
            ),
        };
        let written = Written { text, clauses: &clauses, table, row, outer: false };
        Ok(repeats.then(|| written.chosen_keys()))
    }

    /// The place among `tables` of a source's table.
    fn place_of(&self, source: usize) -> Result<usize, StatementRefusal> {
        let table = self.sources.items.get(source).and_then(|source| source.table.as_ref());
        let place = self.tables.iter().position(|known| Some(known) == table);
        place.ok_or_else(misread)
    }
}

fn target(sources: &Sources) -> Result<TableName, StatementRefusal> {
    let first = sources.items.first().ok_or_else(misread)?;
    first.table.clone().ok_or_else(not_a_table)
}

/// MySQL: the tables that are assigned. If a column stands without its table, any of the sources
/// may have it.
fn assigned_tables(
    sources: &Sources,
    tree: &UpdateTree,
) -> Result<Vec<TableName>, StatementRefusal> {
    let mut tables = Vec::new();
    let mut all = false;
    for name in assigned_names(&tree.assignments) {
        let Some(row) = qualifier(name) else {
            all = true;
            continue;
        };
        let place = sources.named(&row.value).ok_or_else(misread)?;
        add(&mut tables, sources.items[place].table.clone().ok_or_else(not_a_table)?);
    }
    if all {
        sources.items.iter().filter_map(|source| source.table.clone()).for_each(|table| {
            add(&mut tables, table);
        });
    }
    if tables.is_empty() { Err(not_a_table()) } else { Ok(tables) }
}

fn add(tables: &mut Vec<TableName>, table: TableName) {
    if !tables.contains(&table) {
        tables.push(table);
    }
}

/// `DELETE FROM target USING items`.
fn postgres_delete(
    tree: &DeleteTree,
    with: Option<&With>,
) -> Result<(Sources, Vec<usize>), StatementRefusal> {
    let (Some(using), [target]) = (&tree.using, from_items(tree)) else { return Err(misread()) };
    if !target.joins.is_empty() {
        return Err(misread());
    }
    let items = [std::slice::from_ref(target), using].concat();
    Ok((Sources::of(Dialect::Postgres, &items, with)?, vec![0]))
}

/// `DELETE targets FROM items`, `DELETE FROM targets USING items`.
fn mysql_delete(
    tree: &DeleteTree,
    with: Option<&With>,
) -> Result<(Sources, Vec<usize>), StatementRefusal> {
    let (named, items) = match (&tree.using, tree.tables.as_slice()) {
        (Some(using), []) => (target_names(from_items(tree))?, using.as_slice()),
        (None, [_, ..]) => (tree.tables.iter().collect(), from_items(tree)),
        _ => return Err(misread()),
    };
    let sources = Sources::of(Dialect::MySql, items, with)?;
    let mut targets = Vec::new();
    for name in named {
        let row = last(name).ok_or_else(misread)?;
        let place = sources.named(&names::folded(Dialect::MySql, row)).ok_or_else(misread)?;
        if !targets.contains(&place) {
            targets.push(place);
        }
    }
    Ok((sources, targets))
}

fn target_names(items: &[TableWithJoins]) -> Result<Vec<&ObjectName>, StatementRefusal> {
    if !items.iter().all(|item| item.joins.is_empty()) {
        return Err(misread());
    }
    items
        .iter()
        .map(|item| {
            let TableFactor::Table { name, alias: None, args: None, .. } = &item.relation else {
                return Err(misread());
            };
            Ok(name)
        })
        .collect()
}

/// Counts the tables of FROM and its like.
fn searched<V: Visit>(part: &V) -> usize {
    struct Count(usize);
    impl TreeVisitor for Count {
        fn pre_visit_table_factor(&mut self, _item: &TableFactor) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }
    }
    let mut count = Count(0);
    let _ = walk(part, &mut count);
    count.0
}

fn not_a_table() -> StatementRefusal {
    StatementRefusal::Clause { clause: "a target that is not a table", reason: "name one table" }
}
