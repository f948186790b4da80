//! The planner's entry point for fuzzers and property tests.

use super::{
    Column, Constraint, Dialect, Generation, KeyFold, Parsed, Plan, Reads, Rule, Table, TableKind,
    UniqueIndex, parse,
};

/// Parses any text and plans it for a table that fits the name in it. Must not panic; gives back
/// the plan, if there is one.
#[doc(hidden)]
pub fn fuzz_entry(dialect: Dialect, reads: Reads, sql: &str) -> Option<Plan> {
    match parse(dialect, reads, sql).ok()? {
        Parsed::Pass | Parsed::Savepoint(_) => Some(Plan::Pass),
        Parsed::Several(parts) => {
            let plans = parts.iter().map(|(text, _)| fuzz_entry(dialect, reads, text));
            plans.collect::<Option<Vec<Plan>>>().and_then(|mut plans| plans.pop())
        }
        Parsed::Statement(statement) => {
            let tables: Vec<Table> =
                statement.tables().iter().map(|table| sample(table.name.clone())).collect();
            let tables: Vec<&Table> = tables.iter().collect();
            statement.plan(&tables, statement.argument_count()).ok().map(|(_, plan)| plan)
        }
    }
}

/// A table with a composite key, a generated part, a computed column and a unique index.
fn sample(name: String) -> Table {
    Table {
        schema: "app".to_owned(),
        name,
        kind: TableKind::Ordinary,
        columns: vec![
            column("id", "bigint", Generation::AutoIncrement),
            column("code", "varchar(8)", Generation::None),
            column("name", "text", Generation::None),
            column("age", "integer", Generation::None),
            column("twice", "integer", Generation::Computed),
        ],
        key: UniqueIndex { columns: vec![0, 1], ..UniqueIndex::named("key") },
        unique: vec![UniqueIndex { columns: vec![2, 3], ..UniqueIndex::named("name_age") }],
        referenced_by: Vec::new(),
        references: Vec::new(),
        triggers: Vec::new(),
        silences_triggers: false,
        filled_by_updates: false,
        unproved: vec![
            Constraint::check("grown".to_owned(), "age > 0".to_owned(), &[]),
            Constraint {
                name: "of_name".to_owned(),
                columns: vec![2],
                rule: Rule::Reference { table: "names".to_owned(), columns: vec!["id".to_owned()] },
                partition: None,
            },
        ],
        rewrites: false,
        returns_inserted: true,
        whole_rows: false,
        row_security: false,
        shown_by_view: None,
        counters: Vec::new(),
    }
}

fn column(name: &str, type_text: &str, generation: Generation) -> Column {
    Column {
        name: name.to_owned(),
        type_text: type_text.to_owned(),
        generation,
        default: None,
        on_update: false,
        nullable: true,
        invisible: false,
        fold: KeyFold::Exact,
    }
}
