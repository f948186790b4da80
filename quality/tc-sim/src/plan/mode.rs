//! The modes that a plan mixes with AT, which is always there.

use std::fmt;

/// A mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Orders have branches that are tried, and confirmed or cancelled.
    Tcc,
    /// Sagas are run beside the orders.
    Saga,
    /// Orders move money between purses in branches that the databases prepare.
    Xa,
    /// Branches tell of what they did by events, which take effect in other databases.
    Outbox,
}

impl Mode {
    /// Every mode, in the order in which a seed draws them.
    pub const ALL: [Self; 4] = [Self::Tcc, Self::Saga, Self::Xa, Self::Outbox];

    /// Its name in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcc => "tcc",
            Self::Saga => "saga",
            Self::Xa => "xa",
            Self::Outbox => "outbox",
        }
    }

    /// The mode of a name.
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
