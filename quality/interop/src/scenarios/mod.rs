//! The scenarios, in the order in which they are played.

mod at;
mod crashes;
mod leader_changes;
mod locks;
mod many;
mod moves;
mod tcc;
mod xa;

use std::fmt;

use anyhow::Result;

use crate::stage::TestBed;

/// The mode of the branches of a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Undo rows.
    At,
    /// Two methods of the application.
    Tcc,
    /// The database's own two phases.
    Xa,
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::At => "at",
            Self::Tcc => "tcc",
            Self::Xa => "xa",
        })
    }
}

/// The runs in which a scenario is played. A run that plays a rank plays the lower ones, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Every run, also those with other serializers and compressors.
    Basic,
    /// The short run and the whole run.
    Core,
    /// The whole run alone.
    More,
}

/// One case that must work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scenario {
    pub(crate) mode: Mode,
    pub(crate) name: &'static str,
    pub(crate) rank: Rank,
    pub(crate) play: fn(&TestBed) -> Result<()>,
}

const fn basic(mode: Mode, name: &'static str, play: fn(&TestBed) -> Result<()>) -> Scenario {
    Scenario { mode, name, rank: Rank::Basic, play }
}

const fn core(mode: Mode, name: &'static str, play: fn(&TestBed) -> Result<()>) -> Scenario {
    Scenario { mode, name, rank: Rank::Core, play }
}

const fn more(mode: Mode, name: &'static str, play: fn(&TestBed) -> Result<()>) -> Scenario {
    Scenario { mode, name, rank: Rank::More, play }
}

/// All of them. Those in which clients must connect again come late: see [`crate::wait::until`].
/// XA comes last: in a process of Java that has a data source for XA, those for AT do nothing more.
pub(crate) const ALL: &[Scenario] = &[
    basic(Mode::At, "commit", at::commit),
    basic(Mode::At, "rollback", at::roll_back),
    core(Mode::At, "timeout", at::timeout),
    more(Mode::At, "dirty-write", at::dirty_write),
    core(Mode::At, "lock-wait", locks::wait),
    more(Mode::At, "lock-conflict", locks::conflict),
    more(Mode::At, "lock-conflict-of-open-transaction", locks::conflict_of_open_transaction),
    core(Mode::At, "global-lock-read", locks::read_under_global_lock),
    core(Mode::At, "two-processes", at::two_processes),
    core(Mode::At, "old-undo-logs", at::old_undo_logs),
    more(Mode::At, "64-clients", many::clients),
    basic(Mode::Tcc, "commit", tcc::commit),
    basic(Mode::Tcc, "rollback", tcc::roll_back),
    more(Mode::Tcc, "timeout", tcc::timeout),
    core(Mode::Tcc, "two-processes", tcc::two_processes),
    core(Mode::At, "killed-before-rollback", crashes::before_rollback),
    more(Mode::At, "killed-before-commit", crashes::before_commit),
    more(Mode::At, "killed-after-rollback", crashes::after_rollback),
    core(Mode::At, "killed-after-commit", crashes::after_commit),
    more(Mode::At, "reconnect", crashes::reconnect),
    more(Mode::At, "leader-killed", leader_changes::killed_between_phases),
    more(Mode::At, "leader-changes", leader_changes::killed),
    more(Mode::Tcc, "leader-changes", leader_changes::killed_with_tcc),
    more(Mode::Tcc, "killed-before-commit", tcc::killed_before_commit),
    more(Mode::At, "moves-there-and-back", moves::there_and_back),
    more(Mode::At, "moves-with-shared-rows", moves::shared_rows),
    core(Mode::Xa, "commit", xa::commit),
    core(Mode::Xa, "rollback", xa::roll_back),
    more(Mode::Xa, "timeout", xa::timeout),
    core(Mode::Xa, "four-services", xa::four_services),
    core(Mode::Xa, "two-replicas", xa::two_replicas),
];
