//! Lists that are read page by page.

/// How far one call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageBounds {
    /// Entries returned.
    pub items_max: usize,
    /// Records looked at: entries, those included that do not pass, and of the entries the holders
    /// and waiters that are looked at or shown. The last entry may go beyond it.
    pub scanned_max: usize,
}

impl PageBounds {
    /// To the end of the list: for tests.
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
