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
}

impl Mode {
    /// Every mode, in the order in which a seed draws them.
    pub const ALL: [Self; 4] = [Self::Tcc, Self::Saga, Self::Xa, Self::Outbox];

    /// Returns its name in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcc => "tcc",
            Self::Saga => "saga",
            Self::Xa => "xa",
            Self::Outbox => "outbox",
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
