//! A row as clients name it, and the modes in which it is locked.

use std::fmt;
use std::sync::Arc;

/// A row and how it is locked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowLock {
    /// The table, as the database's catalogue spells it.
    pub table: Arc<str>,
    /// The canonical key: for each key column in key order `{length}:{text}`.
    pub key: Box<[u8]>,
    /// Exclusive, shared or delta.
    pub mode: LockMode,
}

/// The mode of a global lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Compatible with shared ones of other globals.
    Shared,
    /// Compatible with those of other globals that have the same tag: changes of the row that
    /// commute with each other, as their undo does.
    Delta(DeltaTag),
    /// Compatible with nothing of another global.
    Exclusive,
}

/// The kind of a change that commutes with others of its kind. Clients say which changes are of one
/// kind; here two tags are equal or not.
///
/// Kept as bytes: a number would be aligned, and each holder of a row would take more memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeltaTag([u8; 8]);

impl LockMode {
    /// Returns whether two globals cannot hold a row in these modes at the same time.
    #[must_use]
    pub fn conflicts(self, other: Self) -> bool {
        match (self, other) {
            (Self::Shared, Self::Shared) => false,
            (Self::Delta(one), Self::Delta(other)) => one != other,
            (Self::Shared, Self::Delta(_) | Self::Exclusive)
            | (Self::Delta(_), Self::Shared | Self::Exclusive)
            | (Self::Exclusive, Self::Shared | Self::Delta(_) | Self::Exclusive) => true,
        }
    }

    /// Returns whether a global that holds a row in this mode may do all that the other one allows.
    #[must_use]
    pub fn covers(self, other: Self) -> bool {
        self == other || self == Self::Exclusive
    }

    /// Returns the mode that allows what both allow. Reads and changes of one row, or changes of
    /// two kinds, do not commute with those of others.
    #[must_use]
    pub fn joined(self, other: Self) -> Self {
        if self == other { self } else { Self::Exclusive }
    }
}

impl DeltaTag {
    /// Returns the tag of this number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        Self(number.to_be_bytes())
    }

    /// The number that it was made of.
    #[must_use]
    pub fn number(self) -> u64 {
        u64::from_be_bytes(self.0)
    }
}

impl fmt::Debug for DeltaTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeltaTag({:#x})", self.number())
    }
}
