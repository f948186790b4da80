//! The rows that a trigger writes.

/// The rows that a trigger writes, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TriggerWrites {
    /// Any: its body does what is not known here, or is not shown.
    #[default]
    Unknown,
    /// Only its own row: the application vouches for it.
    Vouched,
    /// Only its own row: its body shows it.
    Shown {
        /// The columns that it fills in, as its body spells them.
        fills: Vec<String>,
        /// Whether it may refuse the row.
        refuses: bool,
    },
}

impl TriggerWrites {
    /// A trigger that fills in columns of its own row.
    pub fn filling(fills: Vec<String>) -> Self {
        Self::Shown { fills, refuses: false }
    }

    /// Returns whether it may change its row.
    pub(in crate::plan) fn fills(&self) -> bool {
        match self {
            Self::Vouched => true,
            Self::Shown { fills, .. } => !fills.is_empty(),
            Self::Unknown => false,
        }
    }

    /// Returns whether its body shows that it fills in a column.
    pub(in crate::plan) fn shows(&self, column: &str) -> bool {
        match self {
            Self::Shown { fills, .. } => fills.iter().any(|name| name.eq_ignore_ascii_case(column)),
            Self::Unknown | Self::Vouched => false,
        }
    }
}
