//! Lists that are read page by page.

/// The bounds of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBounds {
    /// Entries returned.
    pub items_max: usize,
    /// Records examined: entries, also those that do not pass, with the holders and waiters that
    /// are examined or shown of them. The last entry may go beyond it.
    pub scanned_max: usize,
}

impl PageBounds {
    /// No bounds, for tests.
    pub const NONE: Self = Self { items_max: usize::MAX, scanned_max: usize::MAX };
}

/// A part of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, C> {
    /// The entries that pass; perhaps none, although the list goes on.
    pub items: Vec<T>,
    /// Where the list goes on, unless it is at its end.
    pub next: Option<C>,
    /// How many records were looked at.
    pub scanned: usize,
}
