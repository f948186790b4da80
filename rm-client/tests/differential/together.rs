//! The generator of statements with writes in their WITH, of which PostgreSQL has several in one.

use handfast_rm_core::plan::Dialect;

use crate::grammar;
use crate::random::Random;
use crate::schema::Schema;
use crate::statement::{Kind, Statement};
use crate::table::{Role, Table};

/// Generates a statement of two or three writes, most of them of one table.
pub(crate) fn statement(schema: &Schema, random: &mut Random) -> Statement {
    assert_eq!(schema.dialect, Dialect::Postgres, "no other database has such statements");
    let first = random.below(schema.tables.len());
    let mut writes = Vec::new();
    for _ in 0..random.between(2, 3) {
        let other = random.chance(30);
        let place = if other { random.below(schema.tables.len()) } else { first };
        writes.push(write(schema, &schema.tables[place], random));
    }
    let last = if random.chance(60) { writes.pop() } else { None };
    let (mut text, mut arguments) = (String::new(), Vec::new());
    let mut readable = None;
    for (at, write) in writes.into_iter().enumerate() {
        let name = format!("w{}", at + 1);
        let start = if at == 0 { "WITH" } else { "," };
        text.push_str(&format!("{start} {name} AS ({})", renumbered(&write.sql, arguments.len())));
        if write.sql.contains(" RETURNING ") {
            readable = Some(name);
        }
        arguments.extend(write.arguments);
    }
    match (last, readable) {
        (Some(last), _) => {
            text.push_str(&format!(" {}", renumbered(&last.sql, arguments.len())));
            arguments.extend(last.arguments);
        }
        (None, Some(name)) => text.push_str(&format!(" SELECT count(*) AS rows FROM {name}")),
        (None, None) => text.push_str(" SELECT 1 AS one"),
    }
    Statement { kind: Kind::Together, sql: text, plain_sql: None, arguments }
}

fn write(schema: &Schema, table: &Table, random: &mut Random) -> Statement {
    // A statement that is refused when it has run has taken numbers that the twin has not.
    let numbered = |role: Role| matches!(role, Role::Generated | Role::AlwaysGenerated);
    let inserts = !table.columns.iter().any(|column| numbered(column.role));
    let kind = match random.below(10) {
        0 | 1 if inserts => Kind::Insert,
        2..5 if inserts => Kind::Upsert,
        5 | 6 => Kind::Delete,
        _ => Kind::Update,
    };
    grammar::of_kind(schema, table, kind, random)
}

/// Numbers the placeholders of a text from another one on. What stands in quotes has none.
fn renumbered(sql: &str, from: usize) -> String {
    let (mut text, mut rest, mut quote) = (String::new(), sql, None);
    while let Some(next) = rest.chars().next() {
        rest = &rest[next.len_utf8()..];
        text.push(next);
        match quote {
            Some(open) if open == next => quote = None,
            None if next == '\'' || next == '"' => quote = Some(next),
            Some(_) | None => {}
        }
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if quote.is_none() && next == '$' && digits > 0 {
            let number: usize = rest[..digits].parse().expect("digits are a number");
            text.push_str(&(number + from).to_string());
            rest = &rest[digits..];
        }
    }
    text
}
