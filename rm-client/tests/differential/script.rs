//! The script of one global: branches of statements and savepoints, and their ends.

use handfast_rm_core::plan::Dialect;

use crate::grammar;
use crate::random::Random;
use crate::schema::Schema;
use crate::statement::{Kind, Statement};
use crate::together;

/// A global to be played.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) branches: Vec<Branch>,
    pub(crate) end: End,
    /// For choices that depend on the results of the statements.
    pub(crate) random: Random,
}

/// A local transaction.
#[derive(Clone, Debug)]
pub(crate) struct Branch {
    pub(crate) steps: Vec<Step>,
    pub(crate) end: BranchEnd,
}

/// The end of a local transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BranchEnd {
    Commit,
    RollBack,
}

/// The end of a global.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    RollBack {
        /// Whether a row is changed without the library before the rollback.
        dirtied: bool,
    },
}

/// A step of a local transaction.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Statement(Statement),
    Savepoint(&'static str),
    RollBackTo(&'static str),
    Release(&'static str),
}

const STATEMENTS_MAX: usize = 8;

impl Script {
    pub(crate) fn generate(schema: &Schema, random: &mut Random) -> Self {
        let several = random.chance(15);
        let branches: Vec<Branch> = (0..if several { random.between(2, 3) } else { 1 })
            .map(|_| Branch::generate(schema, random))
            .collect();
        let end = match random.below(10) {
            0..4 => End::Commit,
            // With several branches, some would already be undone when the dirty row is found.
            4 => End::RollBack { dirtied: !several },
            _ => End::RollBack { dirtied: false },
        };
        Self { branches, end, random: random.clone() }
    }

    /// Returns the number of statements.
    pub(crate) fn statements(&self) -> usize {
        let steps = self.branches.iter().flat_map(|branch| &branch.steps);
        steps.filter(|step| matches!(step, Step::Statement(_))).count()
    }
}

impl Branch {
    fn generate(schema: &Schema, random: &mut Random) -> Self {
        let mut steps = Vec::new();
        let mut set: Vec<&'static str> = Vec::new();
        for _ in 0..random.between(1, STATEMENTS_MAX) {
            match random.below(12) {
                0 => {
                    let name = *random.pick(&["a", "b"]);
                    // Databases differ in the treatment of an older savepoint of the same name.
                    if !set.contains(&name) {
                        set.push(name);
                        steps.push(Step::Savepoint(name));
                    }
                }
                1 if !set.is_empty() => {
                    let at = random.below(set.len());
                    set.truncate(at + 1);
                    steps.push(Step::RollBackTo(set[at]));
                }
                2 if !set.is_empty() => {
                    let at = random.below(set.len());
                    steps.push(Step::Release(set[at]));
                    set.truncate(at);
                }
                _ => {}
            }
            let several = schema.dialect == Dialect::Postgres && random.chance(8);
            let generate = if several { together::statement } else { grammar::statement };
            steps.push(Step::Statement(generate(schema, random)));
        }
        let end = if random.chance(4) { BranchEnd::RollBack } else { BranchEnd::Commit };
        Self { steps, end }
    }
}

/// Returns whether the library must refuse a statement.
pub(crate) fn must_be_refused(statement: &Statement) -> bool {
    statement.kind == Kind::Forbidden
}
