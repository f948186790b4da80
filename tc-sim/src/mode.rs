//! The modes that a plan mixes with AT, which is always there.

use std::fmt;

/// A mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// Orders have branches that are tried, and confirmed or cancelled.
    Tcc,
    /// Sagas are run beside the orders.
    Saga,
}

impl Mode {
    /// Every mode, in the order in which a seed draws them.
    pub const ALL: [Self; 2] = [Self::Tcc, Self::Saga];

    /// Its name in plans.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcc => "tcc",
            Self::Saga => "saga",
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
