//! A statement with its arguments, and the draft that builds both.

use handfast_rm_core::plan::Dialect;

use crate::random::Random;

/// A generated statement.
#[derive(Clone, Debug)]
pub(crate) struct Statement {
    pub(crate) kind: Kind,
    /// The text for the library.
    pub(crate) sql: String,
    /// The text for the database without the library, if that is another one.
    pub(crate) plain_sql: Option<String>,
    pub(crate) arguments: Vec<Bound>,
}

/// An argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Bound {
    Null,
    Whole(i64),
    Text(String),
}

/// The kind of a statement, for the counts of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Kind {
    Insert,
    InsertSelect,
    InsertIgnore,
    Upsert,
    Replace,
    Update,
    Delete,
    /// Several writes, by WITH.
    Together,
    LockingRead,
    Read,
    Forbidden,
}

impl Statement {
    /// Returns whether it only reads.
    pub(crate) fn reads(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::LockingRead)
    }
}

/// A statement under construction. Arguments are marked in the text and get their placeholders at
/// the end, so that parts can be generated in any order.
#[derive(Debug)]
pub(crate) struct Draft<'r> {
    pub(crate) dialect: Dialect,
    pub(crate) random: &'r mut Random,
    arguments: Vec<Bound>,
}

const MARK: char = '\u{1}';

impl<'r> Draft<'r> {
    pub(crate) fn new(dialect: Dialect, random: &'r mut Random) -> Self {
        Self { dialect, random, arguments: Vec::new() }
    }

    /// Adds an argument, and returns its mark.
    pub(crate) fn bind(&mut self, bound: Bound) -> String {
        self.arguments.push(bound);
        format!("{MARK}{}{MARK}", self.arguments.len() - 1)
    }

    /// Returns whether an argument is NULL.
    pub(crate) fn binds_null(&self) -> bool {
        self.arguments.contains(&Bound::Null)
    }

    /// Returns one of the given texts.
    pub(crate) fn pick(&mut self, texts: &[&'static str]) -> &'static str {
        let text: &'static str = self.random.pick::<&'static str>(texts);
        text
    }

    /// Replaces the marks by placeholders.
    pub(crate) fn finish(self, kind: Kind, text: &str) -> Statement {
        let numbered = match self.dialect {
            Dialect::Postgres => Some('$'),
            Dialect::MySql => None,
            Dialect::Sqlite => self.random.chance(30).then_some('?'),
        };
        let mut sql = String::new();
        let mut in_order = Vec::new();
        for (at, part) in text.split(MARK).enumerate() {
            if at % 2 == 0 {
                sql.push_str(part);
                continue;
            }
            let index: usize = part.parse().expect("a mark holds the argument's number");
            match numbered {
                Some(sign) => sql.push_str(&format!("{sign}{}", index + 1)),
                None => sql.push('?'),
            }
            in_order.push(self.arguments[index].clone());
        }
        let arguments = if numbered.is_some() { self.arguments } else { in_order };
        Statement { kind, sql, plain_sql: None, arguments }
    }
}
