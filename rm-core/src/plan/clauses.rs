//! The places of the clauses of an UPDATE or DELETE in its tokens.

use std::ops::Range;

use sqlparser::{ast::Expr, keywords::Keyword};

use super::{StatementRefusal, text::Text};

/// Token ranges of the clauses.
#[derive(Clone, Debug)]
pub(super) struct Clauses {
    /// From the start (a WITH clause, or nothing) up to the verb.
    pub(super) with: Range<usize>,
    /// The table as written, alias included.
    pub(super) target: Range<usize>,
    /// The assignments of an UPDATE, without SET.
    pub(super) assignments: Range<usize>,
    /// The condition, without WHERE.
    pub(super) predicate: Option<Range<usize>>,
    /// `ORDER BY ...`.
    pub(super) order: Option<Range<usize>>,
    /// `LIMIT ...`.
    pub(super) limit: Option<Range<usize>>,
    /// The items, without RETURNING.
    pub(super) returning: Option<Range<usize>>,
}

/// The clauses that the parser's tree has; the tokens must agree.
pub(super) struct Expected<'a> {
    pub(super) predicate: Option<&'a Expr>,
    pub(super) order: bool,
    pub(super) limit: bool,
    pub(super) returning: bool,
}

const CLAUSES: [Keyword; 4] = [Keyword::WHERE, Keyword::RETURNING, Keyword::ORDER, Keyword::LIMIT];

impl Clauses {
    /// The clauses of `UPDATE target SET assignments ...`.
    pub(super) fn of_update(
        text: &Text,
        expected: &Expected<'_>,
    ) -> Result<Self, StatementRefusal> {
        let verb = text.find(0, &[Keyword::UPDATE]).ok_or_else(misread)?;
        let mut target = verb + 1;
        if text.lexemes.get(target).is_some_and(|next| next.keyword() == Keyword::OR) {
            // Past `OR ABORT`, the only such clause that is not refused.
            target += 2;
        }
        let set = text.find(target, &[Keyword::SET]).ok_or_else(misread)?;
        let end = text.find(set + 1, &CLAUSES).unwrap_or(text.end());
        Self::rest(text, 0..verb, target..set, set + 1..end).agreeing(text, expected)
    }

    /// The clauses of `DELETE FROM target ...`.
    pub(super) fn of_delete(
        text: &Text,
        expected: &Expected<'_>,
    ) -> Result<Self, StatementRefusal> {
        let verb = text.find(0, &[Keyword::DELETE]).ok_or_else(misread)?;
        let from = text.find(verb, &[Keyword::FROM]).ok_or_else(misread)?;
        let end = text.find(from + 1, &CLAUSES).unwrap_or(text.end());
        Self::rest(text, 0..verb, from + 1..end, end..end).agreeing(text, expected)
    }

    fn rest(
        text: &Text,
        with: Range<usize>,
        target: Range<usize>,
        assignments: Range<usize>,
    ) -> Self {
        let from = assignments.end;
        let clause = |keyword: Keyword| {
            let start = text.find(from, &[keyword])?;
            Some(start..text.find(start + 1, &CLAUSES).unwrap_or(text.end()))
        };
        let content = |range: Range<usize>| range.start + 1..range.end;
        Self {
            with,
            target,
            assignments,
            predicate: clause(Keyword::WHERE).map(content),
            order: clause(Keyword::ORDER),
            limit: clause(Keyword::LIMIT),
            returning: clause(Keyword::RETURNING).map(content),
        }
    }

    /// The tree and the tokens are two readings of one text. If they differ, neither is trusted.
    fn agreeing(self, text: &Text, expected: &Expected<'_>) -> Result<Self, StatementRefusal> {
        let predicate = match (&self.predicate, expected.predicate) {
            (Some(tokens), Some(tree)) => text.reads_as(tokens.clone(), tree),
            (None, None) => true,
            (Some(_), None) | (None, Some(_)) => false,
        };
        let agree = predicate
            && self.order.is_some() == expected.order
            && self.limit.is_some() == expected.limit
            && self.returning.is_some() == expected.returning;
        if agree { Ok(self) } else { Err(misread()) }
    }
}

/// The clauses were not found where the parser saw them.
pub(super) fn misread() -> StatementRefusal {
    StatementRefusal::Unparsed { reason: "its clauses cannot be told apart".to_owned() }
}
