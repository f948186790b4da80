//! The places of the clauses of a change over several sources in its tokens.

use std::ops::Range;

use sqlparser::{
    ast::{Delete as DeleteTree, Expr, Update as UpdateTree},
    keywords::Keyword,
};

use super::super::{
    Dialect, StatementRefusal, clauses::misread, guard::Reach, image::swallow_in, lexeme::Lexeme,
    placeholder, text::Text,
};

/// Token ranges of the clauses.
#[derive(Clone, Debug)]
pub(super) struct JoinedClauses {
    /// From the start (a WITH clause, or nothing) up to the verb.
    pub(super) with: Range<usize>,
    /// The place where UPDATE and PostgreSQL's DELETE name their table: on MySQL all sources.
    pub(super) target: Range<usize>,
    /// The assignments of an UPDATE, without SET.
    pub(super) assignments: Range<usize>,
    /// The further sources, without FROM or USING; on MySQL's DELETE all of them.
    pub(super) from: Option<Range<usize>>,
    /// The condition, without WHERE.
    pub(super) predicate: Option<Range<usize>>,
    /// The items, without RETURNING.
    pub(super) returning: Option<Range<usize>>,
}

const ENDS: [Keyword; 2] = [Keyword::WHERE, Keyword::RETURNING];

impl JoinedClauses {
    pub(super) fn of_update(text: &Text, tree: &UpdateTree) -> Result<Self, StatementRefusal> {
        let verb = text.find(0, &[Keyword::UPDATE]).ok_or_else(misread)?;
        let mut target = verb + 1;
        if text.lexemes.get(target).is_some_and(|next| next.keyword() == Keyword::OR) {
            // Past `OR ABORT`, the only such clause that is not refused.
            target += 2;
        }
        let set = text.find(target, &[Keyword::SET]).ok_or_else(misread)?;
        let end = text.find(set + 1, &ENDS).unwrap_or(text.end());
        let from = from_of(text, set + 1).filter(|from| *from < end);
        if from.is_some() != tree.from.is_some() {
            return Err(misread());
        }
        let clauses = Self {
            with: 0..verb,
            target: target..set,
            assignments: set + 1..from.unwrap_or(end),
            from: from.map(|from| from + 1..end),
            predicate: None,
            returning: None,
        };
        clauses.ending(text, end, tree.selection.as_ref(), tree.returning.is_some())
    }

    pub(super) fn of_delete(text: &Text, tree: &DeleteTree) -> Result<Self, StatementRefusal> {
        let verb = text.find(0, &[Keyword::DELETE]).ok_or_else(misread)?;
        let from = text.find(verb, &[Keyword::FROM]).ok_or_else(misread)?;
        let using = tree.using.as_ref().map(|_| text.find(from, &[Keyword::USING]));
        let items = match using {
            Some(using) => using.ok_or_else(misread)?,
            None => from,
        };
        let end = text.find(items + 1, &ENDS).unwrap_or(text.end());
        let clauses = Self {
            with: 0..verb,
            target: from + 1..items.max(from + 1),
            assignments: end..end,
            from: Some(items + 1..end),
            predicate: None,
            returning: None,
        };
        clauses.ending(text, end, tree.selection.as_ref(), tree.returning.is_some())
    }

    /// The clauses behind the sources. The tree and the tokens are two readings of one text; if
    /// they differ, neither is trusted.
    fn ending(
        mut self,
        text: &Text,
        end: usize,
        selection: Option<&Expr>,
        returns: bool,
    ) -> Result<Self, StatementRefusal> {
        let found = text.find(end, &[Keyword::RETURNING]);
        let last = found.unwrap_or(text.end());
        self.returning = found.map(|found| found + 1..text.end());
        let filtered = text.lexemes.get(end).is_some_and(|at| at.keyword() == Keyword::WHERE);
        self.predicate = filtered.then(|| end + 1..last);
        let same = match (&self.predicate, selection) {
            (Some(tokens), Some(tree)) => text.reads_as(tokens.clone(), tree),
            (None, None) => end == last,
            (Some(_), None) | (None, Some(_)) => false,
        };
        if same && found.is_some() == returns { Ok(self) } else { Err(misread()) }
    }

    /// The rows that the name of the written table means: on MySQL there is no difference.
    pub(super) fn reach(&self, text: &Text) -> Reach {
        Reach::at(text, self.target.start)
    }

    /// The condition as a term in brackets, if there is one.
    pub(super) fn condition(&self, text: &Text) -> Option<String> {
        self.predicate.clone().map(|tokens| format!("({})", text.cut(tokens)))
    }

    /// The items that the application wants back.
    pub(super) fn own_items(&self, text: &Text) -> String {
        self.returning.clone().map(|items| text.cut(items)).unwrap_or_default()
    }

    /// Terms for the arguments of some clauses that a query leaves out.
    pub(super) fn swallowed(
        text: &Text,
        clauses: impl IntoIterator<Item = Option<Range<usize>>>,
    ) -> Vec<String> {
        clauses.into_iter().flatten().flat_map(|tokens| swallow_in(text, tokens)).collect()
    }
}

/// The FROM behind assignments; the one in `a IS DISTINCT FROM b` is another.
fn from_of(text: &Text, start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        at = text.find(at, &[Keyword::FROM])?;
        if text.lexemes[at - 1].keyword() != Keyword::DISTINCT {
            return Some(at);
        }
        at += 1;
    }
}

/// MySQL: a source of one row that takes `count` arguments and joins without effect.
pub(super) fn swallowing_source(dialect: Dialect, count: usize) -> String {
    let terms = placeholder::swallow(dialect, count);
    let filter =
        if terms.is_empty() { String::new() } else { format!(" WHERE {}", terms.join(" AND ")) };
    format!(" JOIN (SELECT 1 AS hf_one FROM DUAL{filter}) hf_none")
}

/// Returns whether a lexeme is an unquoted keyword.
pub(super) fn is_keyword(lexeme: Option<&Lexeme>, keyword: Keyword) -> bool {
    lexeme.is_some_and(|lexeme| lexeme.keyword() == keyword)
}
