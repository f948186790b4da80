//! Constraints that existing rows may break: such a row could not be put back, so a change of it is
//! refused.

use sqlparser::{ast::TableFactor, keywords::Keyword, tokenizer::Token};

use super::{
    Column, Dialect, Generation, StatementRefusal, Table, lexeme::Lexeme, quote, text::Text,
};

/// A constraint that the database checks when a row is written, although existing rows may break
/// it: on PostgreSQL one that is NOT VALID, elsewhere every one, since its checks can be switched
/// off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Its name, or its text where it has none.
    pub name: String,
    /// The columns that it depends on; none if they are not known.
    pub columns: Vec<usize>,
    /// The demand.
    pub rule: Rule,
    /// The oid of the PostgreSQL partition that it is about, if that is not the whole table.
    pub partition: Option<i64>,
}

/// The demand of a constraint on a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// A condition, as SQL, must not be false.
    Check(String),
    /// A row of another table must have the values of its columns, unless one of them is NULL.
    Reference {
        /// The other table, quoted.
        table: String,
        /// Its columns, one for each column of the constraint.
        columns: Vec<String>,
    },
}

/// Whether the rows that a constraint asks for are locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lookup {
    Plain,
    /// MySQL: the newest version of the row, which a plain read in an older snapshot does not see.
    Locking,
}

impl Constraint {
    /// A CHECK constraint of a table with these columns.
    pub fn check(name: String, condition: String, columns: &[Column]) -> Self {
        let named = |column: &&usize| mentions(&condition, &columns[**column].name);
        let all: Vec<usize> = (0..columns.len()).collect();
        let columns = all.iter().filter(named).copied().collect();
        Self { name, columns, rule: Rule::Check(condition), partition: None }
    }

    /// Returns whether a change of columns can repair a row that breaks it.
    fn looks_at(&self, table: &Table, changed: &[usize]) -> bool {
        // A computed column changes with columns that are not named here.
        let computed = |column: &usize| table.columns[*column].generation == Generation::Computed;
        self.columns.is_empty()
            || self.columns.iter().any(|column| changed.contains(column) || computed(column))
    }

    /// The condition that is true of a row that breaks it. `row` stands for the row.
    fn broken(&self, dialect: Dialect, table: &Table, row: &str, lookup: Lookup) -> String {
        let broken = match &self.rule {
            Rule::Check(condition) => format!("NOT ({condition})"),
            Rule::Reference { table: other, columns } => {
                let lock = if lookup == Lookup::Locking { " LOCK IN SHARE MODE" } else { "" };
                let (mut terms, mut same) = (Vec::new(), Vec::new());
                for (column, referenced) in self.columns.iter().zip(columns) {
                    let own = quote::identifier(dialect, &table.columns[*column].name);
                    terms.push(format!("{row}.{own} IS NOT NULL"));
                    let referenced = quote::identifier(dialect, referenced);
                    same.push(format!("hf_other.{referenced} = {row}.{own}"));
                }
                let same = same.join(" AND ");
                let found = format!("SELECT 1 FROM {other} hf_other WHERE {same}{lock}");
                format!("{} AND NOT EXISTS ({found})", terms.join(" AND "))
            }
        };
        match self.partition {
            Some(partition) => format!("{row}.tableoid = {partition} AND {broken}"),
            None => broken,
        }
    }
}

/// The constraints that may keep a change of columns from being undone.
pub(super) fn of_update<'t>(table: &'t Table, changed: &[usize]) -> Vec<&'t Constraint> {
    table.unproved.iter().filter(|constraint| constraint.looks_at(table, changed)).collect()
}

/// The constraints that may keep an upsert's change of columns from being undone. The undo also
/// writes the other columns, unchanged. That repeats checks of their values, but changes no
/// reference.
pub(super) fn of_upsert<'t>(table: &'t Table, changed: &[usize]) -> Vec<&'t Constraint> {
    let counts = |constraint: &&Constraint| {
        matches!(constraint.rule, Rule::Check(_)) || constraint.looks_at(table, changed)
    };
    table.unproved.iter().filter(counts).collect()
}

/// The constraints that may keep whole rows from being put back.
pub(super) fn of_whole_rows(table: &Table) -> Vec<&Constraint> {
    table.unproved.iter().collect()
}

/// An item of a select list: the name of a constraint that the row breaks, or NULL. Nothing if
/// there is no constraint.
pub(super) fn verdict(
    dialect: Dialect,
    table: &Table,
    row: &str,
    constraints: &[&Constraint],
) -> String {
    if constraints.is_empty() {
        return String::new();
    }
    let when = |constraint: &&Constraint| {
        let broken = constraint.broken(dialect, table, row, Lookup::Plain);
        format!("WHEN {broken} THEN {}", quote::literal(dialect, &constraint.name))
    };
    let cases: Vec<String> = constraints.iter().map(when).collect();
    format!(", CASE {} END AS hf_broken", cases.join(" "))
}

/// The same where several tables are read: each column stands with its row.
pub(super) fn verdict_among(
    dialect: Dialect,
    table: &Table,
    row: &str,
    constraints: &[&Constraint],
) -> String {
    let own = |constraint: &&Constraint| match &constraint.rule {
        Rule::Check(condition) => Constraint {
            rule: Rule::Check(qualified(dialect, table, row, condition)),
            ..(*constraint).clone()
        },
        Rule::Reference { .. } => (*constraint).clone(),
    };
    let constraints: Vec<Constraint> = constraints.iter().map(own).collect();
    verdict(dialect, table, row, &constraints.iter().collect::<Vec<_>>())
}

/// A condition with the row's name before each of its columns. Names of types and functions are
/// none.
fn qualified(dialect: Dialect, table: &Table, row: &str, condition: &str) -> String {
    let Ok(texts) = Text::statements(dialect, condition) else { return condition.to_owned() };
    let [text] = texts.as_slice() else { return condition.to_owned() };
    let (mut out, mut from) = (String::new(), 0);
    for (at, word) in text.lexemes.iter().enumerate() {
        let name = word.word().filter(|name| table.column(dialect, name).is_some());
        let before = at.checked_sub(1).map(|before| &text.lexemes[before]);
        let bound = |token: &Token| before.is_some_and(|before| before.is(token));
        let called = text.lexemes.get(at + 1).is_some_and(|next| next.is(&Token::LParen));
        if name.is_none() || called || bound(&Token::Period) || bound(&Token::DoubleColon) {
            continue;
        }
        out.push_str(&condition[from..word.place.start]);
        out.push_str(row);
        out.push('.');
        from = word.place.start;
    }
    out.push_str(&condition[from..]);
    out
}

/// MySQL: the condition that checks again, under locks, whether the row breaks a foreign key.
/// `None` for constraints that depend on nothing but the row, which the first read has locked.
pub(super) fn again(dialect: Dialect, table: &Table, row: &str, name: &str) -> Option<String> {
    let constraint = table.unproved.iter().find(|constraint| constraint.name == name)?;
    let asked = dialect == Dialect::MySql && matches!(constraint.rule, Rule::Reference { .. });
    asked.then(|| constraint.broken(dialect, table, row, Lookup::Locking))
}

/// Returns the name of the row in a statement: the table's alias, or the last part of its name.
pub(super) fn row_of(item: &TableFactor) -> Result<String, StatementRefusal> {
    let TableFactor::Table { name, alias, .. } = item else {
        return Err(super::clauses::misread());
    };
    let last = name.0.last().map(ToString::to_string);
    let named = alias.as_ref().map(|alias| alias.name.to_string()).or(last);
    if named.as_deref().is_some_and(|name| name.to_ascii_lowercase().contains("hf_other")) {
        return Err(StatementRefusal::Clause {
            clause: "a table under the name hf_other",
            reason: "give it another alias: the checks of constraints use this one",
        });
    }
    named.ok_or_else(super::clauses::misread)
}

/// The CHECK constraints in the text that makes a table, each with its name and its condition:
/// SQLite shows them nowhere else, and MariaDB not to every account. Outside of quotes CHECK is
/// never a name.
pub fn checks(dialect: Dialect, sql: &str) -> Vec<(String, String)> {
    let Ok(texts) = Text::statements(dialect, sql) else { return Vec::new() };
    let Some(text) = texts.first() else { return Vec::new() };
    let words = &text.lexemes;
    let mut found = Vec::new();
    for at in 0..words.len() {
        let opens = words.get(at + 1).is_some_and(|next| next.is(&Token::LParen));
        if words[at].keyword() != Keyword::CHECK || !opens {
            continue;
        }
        let inside = at + 2..closing(words, at + 1);
        let condition = unqualified(text, &words[inside]);
        let named = at >= 2 && words[at - 2].keyword() == Keyword::CONSTRAINT;
        let name = named.then(|| words[at - 1].word()).flatten();
        let name = name.map_or_else(|| format!("CHECK ({condition})"), str::to_owned);
        found.push((name, condition));
    }
    found
}

/// Returns whether a condition names a column, in quotes or not.
pub(super) fn mentions(condition: &str, column: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let mut words = condition.split(|c| !is_part(c));
    let is_plain = column.chars().all(is_part);
    words.any(|word| word.eq_ignore_ascii_case(column)) || !is_plain && condition.contains(column)
}

/// The place of the bracket that closes the one at `open`.
fn closing(words: &[Lexeme], open: usize) -> usize {
    let depth = words[open].depth;
    let closes = |word: &Lexeme| word.is(&Token::RParen) && word.depth == depth;
    words[open..].iter().position(closes).map_or(words.len(), |offset| open + offset)
}

/// The words without the table's name before a column's: in a statement the table may have another.
fn unqualified(text: &Text, words: &[Lexeme]) -> String {
    let (Some(first), Some(last)) = (words.first(), words.last()) else { return String::new() };
    let (mut kept, mut from) = (String::new(), first.place.start);
    for (at, word) in words.iter().enumerate() {
        let qualifies = words.get(at + 1).is_some_and(|next| next.is(&Token::Period));
        if qualifies || word.is(&Token::Period) {
            kept.push_str(&text.whole()[from..word.place.start]);
            from = word.place.end;
        }
    }
    kept.push_str(&text.whole()[from..last.place.end]);
    kept
}

#[cfg(test)]
mod tests {
    use super::{Dialect, checks};

    #[test]
    fn checks_are_found_in_a_tables_text() {
        let found = checks(
            Dialect::Sqlite,
            "CREATE TABLE \"t\" (id INTEGER PRIMARY KEY, -- CHECK (no)\n \
             v INT CHECK (v > 0 AND \"t\".v<>')' ) NOT NULL, \"check\" TEXT DEFAULT 'CHECK (1)', \
             CONSTRAINT pair CHECK((t.v, [check]) IS NOT (1, x'00')))",
        );
        let expected = [
            ("CHECK (v > 0 AND v<>')')", "v > 0 AND v<>')'"),
            ("pair", "(v, [check]) IS NOT (1, x'00')"),
        ];
        assert_eq!(found, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }

    #[test]
    fn a_table_without_checks_has_none() {
        assert_eq!(checks(Dialect::Sqlite, "CREATE TABLE checks (a, b)"), []);
        assert_eq!(checks(Dialect::Sqlite, "CREATE TABLE t (a CHECK"), []);
    }

    #[test]
    fn checks_are_found_as_mariadb_shows_a_table() {
        let found = checks(
            Dialect::MySql,
            "CREATE TABLE `t` (\n  `doc` longtext CHARACTER SET utf8mb4 COLLATE utf8mb4_bin \
             DEFAULT NULL COMMENT 'it''s \\'CHECK (1)' CHECK (json_valid(`doc`)),\n  \
             CONSTRAINT `a check` CHECK (`doc` <> '\\'')\n) ENGINE=InnoDB CHECKSUM=1 \
             COMMENT='none'\n/*!50100 PARTITION BY HASH (`id`) PARTITIONS 4 */",
        );
        let expected =
            [("CHECK (json_valid(`doc`))", "json_valid(`doc`)"), ("a check", "`doc` <> '\\''")];
        assert_eq!(found, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }
}
