//! The modes that a plan mixes with AT, which every plan has.

use std::fmt;

/// A mode beside AT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Orders have TCC branches, which are tried, then confirmed or cancelled.
    Tcc,
    /// Sagas run beside the orders.
    Saga,
    /// Orders move money between purses in branches that the databases prepare.
    Xa,
    /// Branches emit events, which take effect in other databases.
    Outbox,
    /// Some branches in AT mode add to counters, and hold their rows together.
    Counters,
    /// Programs from outside write rows of orders, against which tables are guarded.
    Guards,
    /// With guards: the run is long, and guards are put on and taken away several times.
    GuardChanges,
    /// Coordinators have few XIDs to lend, so that clients ask for more with most of their begins.
    FewXids,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Self; 8] = [
        Self::Tcc,
        Self::Saga,
        Self::Xa,
        Self::Outbox,
        Self::Counters,
        Self::Guards,
        Self::GuardChanges,
        Self::FewXids,
    ];
    /// The modes that a seed draws first, in that order.
    pub(super) const DRAWN_FIRST: [Self; 4] = [Self::Tcc, Self::Saga, Self::Xa, Self::Outbox];

    /// Returns its name in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcc => "tcc",
            Self::Saga => "saga",
            Self::Xa => "xa",
            Self::Outbox => "outbox",
            Self::Counters => "counters",
            Self::Guards => "guards",
            Self::GuardChanges => "guard-changes",
            Self::FewXids => "few-xids",
        }
    }

    /// Returns the mode with a name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
