//! A case: what is refused, how, and what does the same.

use futures::future::LocalBoxFuture;
use handfast::AtResource;

use super::plain::Bound;
use crate::at::{Stage, TestDatabase};

/// The tables that the cases of a file share.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) statements: &'static [&'static str],
    /// Each table that a case may change, and its columns.
    pub(crate) tables: &'static [(&'static str, &'static [&'static str])],
}

pub(crate) type Code<DB> = for<'s> fn(&'s Stage<DB>) -> LocalBoxFuture<'s, ()>;
pub(crate) type Resource<DB> = for<'s> fn(&'s Stage<DB>) -> LocalBoxFuture<'s, AtResource<DB>>;

/// The advice of a refusal.
#[derive(Clone, Copy)]
pub(crate) enum Advice<DB: TestDatabase> {
    /// Nothing in a branch: what is to be done outside of one does it all.
    Nothing,
    /// The refused statement itself, in a branch.
    Again,
    /// These statements, in one branch.
    Statements(&'static [&'static str]),
    /// The same with arguments.
    Bound(&'static [Bound]),
    /// Something of the library, which the code checks by itself.
    Code(Code<DB>),
}

/// The effect that the advice is compared with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Effect {
    /// The tables as the refused statement leaves them without the library.
    Same,
    /// The tables as these leave them, since the database refuses the statement too, or its text
    /// does not run by itself.
    Of(&'static [&'static str]),
    /// No table is changed.
    None,
    /// No table is changed, and the last statement reads what the refused one reads.
    Answer,
}

/// When a statement is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Before it has changed anything: the local transaction goes on.
    Before,
    /// When it has run: the local transaction can only be rolled back.
    After,
}

/// A statement that a branch refuses, and what its refusal says to do instead.
#[derive(Clone, Copy)]
pub(crate) struct Case<DB: TestDatabase> {
    pub(crate) code: &'static str,
    pub(crate) refused: Bound,
    /// A part of the text of the refusal.
    pub(crate) text: &'static str,
    pub(crate) when: When,
    /// Whether the reads of the global are to be globally committed.
    pub(crate) committed: bool,
    /// The resource on which the statement is refused, if it is another one.
    pub(crate) refused_on: Option<Resource<DB>>,
    /// Statements that are executed outside of a global first.
    pub(crate) outside: &'static [&'static str],
    /// The resource that the advice needs, if it is another one.
    pub(crate) resource: Option<Resource<DB>>,
    pub(crate) advice: Advice<DB>,
    pub(crate) effect: Effect,
}

impl<DB: TestDatabase> Case<DB> {
    /// Describes a statement that is refused with a code (without its `HF-AT-`) and a text.
    pub(crate) const fn new(code: &'static str, refused: &'static str, text: &'static str) -> Self {
        Self {
            code,
            refused: (refused, &[]),
            text,
            when: When::Before,
            committed: false,
            refused_on: None,
            outside: &[],
            resource: None,
            advice: Advice::Nothing,
            effect: Effect::Same,
        }
    }

    /// Binds arguments to the refused statement.
    pub(crate) const fn bound(mut self, arguments: &'static [i64]) -> Self {
        self.refused.1 = arguments;
        self
    }

    /// The statement is refused when it has run.
    pub(crate) const fn too_late(mut self) -> Self {
        self.when = When::After;
        self
    }

    /// The statement is refused in a global whose reads are to be globally committed.
    pub(crate) const fn committed(mut self) -> Self {
        self.committed = true;
        self
    }

    /// The statement is refused on a resource that is described otherwise.
    pub(crate) const fn refused_on(mut self, resource: Resource<DB>) -> Self {
        self.refused_on = Some(resource);
        self
    }

    /// The advice begins with statements outside of a global.
    pub(crate) const fn outside(mut self, statements: &'static [&'static str]) -> Self {
        self.outside = statements;
        self
    }

    /// The advice needs a resource that is described otherwise.
    pub(crate) const fn on(mut self, resource: Resource<DB>) -> Self {
        self.resource = Some(resource);
        self
    }

    /// The advice: the same statement, after what was done outside.
    pub(crate) const fn again(mut self) -> Self {
        self.advice = Advice::Again;
        self
    }

    /// The advice: statements of one branch.
    pub(crate) const fn instead(mut self, statements: &'static [&'static str]) -> Self {
        self.advice = Advice::Statements(statements);
        self
    }

    /// The advice: statements of one branch, with arguments.
    pub(crate) const fn instead_bound(mut self, statements: &'static [Bound]) -> Self {
        self.advice = Advice::Bound(statements);
        self
    }

    /// The advice: something of the library.
    pub(crate) const fn by(mut self, code: Code<DB>) -> Self {
        self.advice = Advice::Code(code);
        self
    }

    /// The advice does what these statements do.
    pub(crate) const fn same_as(mut self, statements: &'static [&'static str]) -> Self {
        self.effect = Effect::Of(statements);
        self
    }

    /// The advice changes no table.
    pub(crate) const fn without_effect(mut self) -> Self {
        self.effect = Effect::None;
        self
    }

    /// The advice reads what the refused statement reads.
    pub(crate) const fn same_answer(mut self) -> Self {
        self.effect = Effect::Answer;
        self
    }

    /// Returns whether the database is as before when the case has run.
    pub(crate) fn is_traceless(&self) -> bool {
        self.outside.is_empty()
            && self.resource.is_none()
            && self.refused_on.is_none()
            && !matches!(self.advice, Advice::Code(_))
    }
}
