//! The row sources of a statement that reads several, and which of them it names.

use sqlparser::ast::{
    Assignment, AssignmentTarget, CteAsMaterialized, Expr, Ident, Join, JoinConstraint,
    JoinOperator, ObjectName, Query, TableFactor, TableWithJoins, Visit, With,
};

use std::ops::ControlFlow;

use super::super::{
    Dialect, StatementRefusal, Table, TableName,
    clauses::misread,
    names,
    walk::{TreeVisitor, walk},
};

/// A table, sub-select or function among the sources.
#[derive(Clone, Debug)]
pub(in crate::plan) struct Source {
    /// The name by which the statement knows it, folded.
    pub(in crate::plan) name: String,
    /// The same as it is written.
    pub(in crate::plan) row: String,
    /// The item as it is written.
    pub(in crate::plan) item: String,
    /// The table, if it is one.
    pub(in crate::plan) table: Option<TableName>,
}

/// The sources of a statement, in the order of its text.
#[derive(Clone, Debug)]
pub(in crate::plan) struct Sources {
    pub(in crate::plan) items: Vec<Source>,
    /// Some columns of several sources are one: `USING (...)`, `NATURAL`.
    pub(in crate::plan) merges: bool,
    /// A source may have no row in a row of the join.
    pub(in crate::plan) outer: bool,
}

impl Sources {
    /// The sources in these items.
    pub(in crate::plan) fn of(
        dialect: Dialect,
        items: &[TableWithJoins],
        with: Option<&With>,
    ) -> Result<Self, StatementRefusal> {
        let mut sources = Self { items: Vec::new(), merges: false, outer: false };
        for item in items {
            sources.add(dialect, item, with)?;
        }
        let names = sources.items.iter().map(|source| &source.name);
        let mut names: Vec<&String> = names.collect();
        names.sort_unstable();
        // The database would not take it either.
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(misread());
        }
        Ok(sources)
    }

    fn add(
        &mut self,
        dialect: Dialect,
        item: &TableWithJoins,
        with: Option<&With>,
    ) -> Result<(), StatementRefusal> {
        self.add_factor(dialect, &item.relation, with)?;
        for join in &item.joins {
            self.add_factor(dialect, &join.relation, with)?;
            self.note(join)?;
        }
        Ok(())
    }

    fn add_factor(
        &mut self,
        dialect: Dialect,
        item: &TableFactor,
        with: Option<&With>,
    ) -> Result<(), StatementRefusal> {
        let (alias, table) = if let TableFactor::Table { name, alias, args, .. } = item {
            let table = args.is_none().then_some(name).filter(|name| !is_cte(dialect, name, with));
            (alias.as_ref(), table.map(|name| names::table(dialect, name)).transpose()?)
        } else if let TableFactor::NestedJoin { table_with_joins, alias: None } = item {
            return self.add(dialect, table_with_joins, with);
        } else if let TableFactor::Derived { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::JsonTable { alias, .. } = item
        {
            (alias.as_ref(), None)
        } else {
            return Err(misread());
        };
        let written = match (alias, item) {
            (Some(alias), _) => alias.name.clone(),
            (None, TableFactor::Table { name, .. }) => last(name).ok_or_else(misread)?.clone(),
            (None, _) => Ident::new(""),
        };
        let name = names::folded(dialect, &written);
        let source = Source { name, row: written.to_string(), item: item.to_string(), table };
        self.items.push(source);
        Ok(())
    }

    fn note(&mut self, join: &Join) -> Result<(), StatementRefusal> {
        let (outer, constraint) = if let JoinOperator::Join(constraint)
        | JoinOperator::Inner(constraint)
        | JoinOperator::CrossJoin(constraint)
        | JoinOperator::StraightJoin(constraint) = &join.join_operator
        {
            (false, constraint)
        } else if let JoinOperator::Left(constraint)
        | JoinOperator::LeftOuter(constraint)
        | JoinOperator::Right(constraint)
        | JoinOperator::RightOuter(constraint)
        | JoinOperator::FullOuter(constraint) = &join.join_operator
        {
            (true, constraint)
        } else {
            return Err(misread());
        };
        self.outer |= outer;
        self.merges |= matches!(constraint, JoinConstraint::Using(_) | JoinConstraint::Natural);
        Ok(())
    }

    /// The place of the source of a name.
    pub(in crate::plan) fn named(&self, name: &str) -> Option<usize> {
        self.items.iter().position(|source| source.name == name)
    }

    /// The sources that assignments write, in the order of the text, each with its columns. Names
    /// of columns without a source are looked up in the tables.
    pub(in crate::plan) fn written(
        &self,
        dialect: Dialect,
        assignments: &[Assignment],
        tables: &[(TableName, &Table)],
    ) -> Result<Vec<(usize, Vec<usize>)>, StatementRefusal> {
        let mut written: Vec<(usize, Vec<usize>)> = Vec::new();
        for name in assigned_names(assignments) {
            let place = match qualifier(name) {
                Some(row) => self.named(&row.value).ok_or_else(misread)?,
                None => self.owner(dialect, name, tables)?,
            };
            let table = self.table(place, tables).ok_or_else(misread)?;
            let column = names::object_column(dialect, table, name)?;
            match written.iter_mut().find(|(known, _)| *known == place) {
                Some((_, columns)) => columns.push(column),
                None => written.push((place, vec![column])),
            }
        }
        written.sort_by_key(|(place, _)| *place);
        for (_, columns) in &mut written {
            columns.sort_unstable();
            columns.dedup();
        }
        Ok(written)
    }

    /// The description of a source's table, if it was loaded.
    pub(in crate::plan) fn table<'t>(
        &self,
        place: usize,
        tables: &[(TableName, &'t Table)],
    ) -> Option<&'t Table> {
        let name = self.items.get(place)?.table.as_ref()?;
        tables.iter().find(|(known, _)| known == name).map(|(_, table)| *table)
    }

    /// The only source with a column of this name.
    fn owner(
        &self,
        dialect: Dialect,
        name: &ObjectName,
        tables: &[(TableName, &Table)],
    ) -> Result<usize, StatementRefusal> {
        let has = |place: &usize| {
            let table = self.table(*place, tables);
            table.is_some_and(|table| names::object_column(dialect, table, name).is_ok())
        };
        let mut owners = (0..self.items.len()).filter(has);
        // A sub-select may have the column too. Then the database refuses the statement.
        match (owners.next(), owners.next()) {
            (Some(owner), None) => Ok(owner),
            _ => Err(StatementRefusal::SeveralTables {
                statement: "UPDATE",
                reason: "write the table before each column that is assigned",
            }),
        }
    }

    /// Returns whether expressions use no source but `place`, whose table is given. What a
    /// sub-select uses is not looked into.
    pub(in crate::plan) fn uses_only<V: Visit>(
        &self,
        dialect: Dialect,
        place: usize,
        table: &Table,
        expressions: &V,
    ) -> bool {
        let row = &self.items[place].name;
        walk(expressions, &mut Uses { dialect, row, table, merges: self.merges }).is_continue()
    }
}

struct Uses<'s> {
    dialect: Dialect,
    row: &'s str,
    table: &'s Table,
    merges: bool,
}

impl TreeVisitor for Uses<'_> {
    fn pre_visit_query(&mut self, _query: &Query) -> ControlFlow<()> {
        ControlFlow::Break(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        let own = if let Expr::Identifier(name) = expr {
            !self.merges && names::column(self.dialect, self.table, name).is_ok()
        } else if let Expr::CompoundIdentifier(parts) = expr {
            matches!(parts.as_slice(), [row, _] if names::folded(self.dialect, row) == self.row)
        } else {
            !matches!(expr, Expr::CompoundFieldAccess { .. })
        };
        if own { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// The names of the columns that assignments write.
pub(in crate::plan) fn assigned_names(
    assignments: &[Assignment],
) -> impl Iterator<Item = &ObjectName> {
    assignments.iter().flat_map(|assignment| match &assignment.target {
        AssignmentTarget::ColumnName(name) => std::slice::from_ref(name),
        AssignmentTarget::Tuple(names) => names.as_slice(),
    })
}

/// MySQL: the source of a column's name.
pub(in crate::plan) fn qualifier(name: &ObjectName) -> Option<&Ident> {
    let place = name.0.len().checked_sub(2)?;
    name.0[place].as_ident()
}

pub(in crate::plan) fn last(name: &ObjectName) -> Option<&Ident> {
    name.0.last().and_then(|part| part.as_ident())
}

/// Returns whether a name is that of a query of WITH.
pub(in crate::plan) fn is_cte(dialect: Dialect, name: &ObjectName, with: Option<&With>) -> bool {
    let [part] = name.0.as_slice() else { return false };
    let Some(name) = part.as_ident().map(|name| names::folded(dialect, name)) else { return false };
    let tables = with.into_iter().flat_map(|with| &with.cte_tables);
    let mut ctes = tables.map(|cte| names::folded(dialect, &cte.alias.name));
    ctes.any(|cte| match dialect {
        Dialect::Postgres | Dialect::MySql => cte == name,
        Dialect::Sqlite => cte.eq_ignore_ascii_case(&name),
    })
}

/// The queries of a WITH that PostgreSQL evaluates again for each use.
pub(in crate::plan) fn unmaterialized(with: Option<&With>) -> Vec<&Query> {
    let tables = with.into_iter().flat_map(|with| &with.cte_tables);
    let again =
        tables.filter(|cte| matches!(cte.materialized, Some(CteAsMaterialized::NotMaterialized)));
    again.map(|cte| &*cte.query).collect()
}
