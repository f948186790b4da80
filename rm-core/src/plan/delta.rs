//! Counters, and the changes of them that commute with each other.
//!
//! A counter is a column that the application has declared: all who change it add to it or take
//! from it. Two changes of one kind give the same value in either order, and so does the undo of
//! one of them. A bound splits the kinds by direction: what an undecided global has added may be
//! taken away again, so nothing else may take from it meanwhile, or the undo could pass the bound.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::{Column, Dialect, Generation, Table};

/// A declared counter of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The column.
    pub column: usize,
    /// The values between which it stays.
    pub bounds: Bounds,
}

/// The values between which a counter stays; `None` is no bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The least one.
    pub lower: Option<i64>,
    /// The greatest one.
    pub upper: Option<i64>,
}

/// The direction of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Adds.
    Up,
    /// Takes away.
    Down,
}

/// The change of one counter by a statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// The counter.
    pub counter: Counter,
    /// The direction as the statement is written. The value may turn it round.
    pub direction: Direction,
}

/// The kind of the changes of one row: changes of equal kinds commute, and others are taken not to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeltaKind(BTreeSet<String>);

/// A reason why a column cannot be a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterFault {
    /// There is no such column.
    Unknown,
    /// Its values are not whole numbers, which alone come back exactly.
    NotWhole,
    /// Its value is in a key, a unique index or a foreign key, so that rows depend on it.
    Named,
    /// The database computes it.
    Computed,
}

impl Bounds {
    /// Returns whether a value is beyond the bound that a change in this direction nears.
    #[must_use]
    pub fn is_passed(self, direction: Direction, value: i128) -> bool {
        match direction {
            Direction::Up => self.upper.is_some_and(|upper| value > i128::from(upper)),
            Direction::Down => self.lower.is_some_and(|lower| value < i128::from(lower)),
        }
    }

    /// The values that are within both.
    #[must_use]
    pub fn within(self, other: Self) -> Self {
        // `None` is less than every lower bound, but greater than every upper one.
        let upper = self.upper.into_iter().chain(other.upper).min();
        Self { lower: self.lower.max(other.lower), upper }
    }

    fn has_any(self) -> bool {
        self.lower.is_some() || self.upper.is_some()
    }
}

impl Column {
    /// The values that its type keeps a counter between, whatever is declared: beyond them an undo
    /// fails. Those of signed types are too far away to be met.
    #[must_use]
    pub fn bounds_of_type(&self, dialect: Dialect) -> Bounds {
        let is_unsigned = self.type_text.to_ascii_lowercase().contains("unsigned");
        // To SQLite the word says nothing.
        let lower = (is_unsigned && dialect == Dialect::MySql).then_some(0);
        Bounds { lower, upper: None }
    }
}

impl Direction {
    /// The direction of a change by an amount; `None` if it is no change.
    #[must_use]
    pub fn of(amount: i128) -> Option<Self> {
        match amount {
            0 => None,
            1.. => Some(Self::Up),
            _ => Some(Self::Down),
        }
    }

    /// An amount as it is added: less than nothing if it is taken.
    #[must_use]
    pub fn signed(self, amount: i128) -> i128 {
        match self {
            Self::Up => amount,
            Self::Down => -amount,
        }
    }
}

impl DeltaKind {
    /// The kind of a change of several counters of one row, each named as in the catalogue.
    #[must_use]
    pub fn of<'t>(changes: impl IntoIterator<Item = (&'t str, Bounds, Direction)>) -> Self {
        let part = |(name, bounds, direction): (&str, Bounds, Direction)| match direction {
            Direction::Up if bounds.has_any() => format!("{name} up"),
            Direction::Down if bounds.has_any() => format!("{name} down"),
            Direction::Up | Direction::Down => name.to_owned(),
        };
        Self(changes.into_iter().map(part).collect())
    }

    /// The kind of two changes of one row together. `None` if they move a bounded counter up and
    /// down, which commutes with nothing.
    #[must_use]
    pub fn joined(&self, other: &Self) -> Option<Self> {
        let all: BTreeSet<String> = self.0.union(&other.0).cloned().collect();
        let turns = |part: &String| {
            let name = part.strip_suffix(" up");
            name.is_some_and(|name| all.contains(&format!("{name} down")))
        };
        (!all.iter().any(turns)).then(|| Self(all.clone()))
    }

    /// The number by which the coordinator knows the kind: the same in every process and version,
    /// never 0.
    #[must_use]
    pub fn tag(&self) -> u64 {
        let mut digest = Sha256::new();
        for part in &self.0 {
            // With their lengths, no two lists of parts are one text.
            digest.update(format!("{}:{part}", part.len()));
        }
        let [a, b, c, d, e, f, g, h, ..] = <[u8; 32]>::from(digest.finalize());
        u64::from_be_bytes([a, b, c, d, e, f, g, h]).max(1)
    }
}

impl Table {
    /// Finds a column that is to be a counter.
    ///
    /// # Errors
    /// The reason why it cannot be one.
    pub fn fit_counter(&self, dialect: Dialect, column: &str) -> Result<usize, CounterFault> {
        let place = self.column(dialect, column).ok_or(CounterFault::Unknown)?;
        let column = &self.columns[place];
        let mut indexes = std::iter::once(&self.key).chain(&self.unique);
        // Neither an index on an expression nor a computed column shows what it is made of.
        let is_computed = |it: &usize| self.columns[*it].generation == Generation::Computed;
        let names = indexes.any(|it| {
            let hides = it.columns.is_empty() || it.columns.iter().any(is_computed);
            hides || it.columns.contains(&place)
        });
        let refers = self.references.iter().any(|it| it.columns.contains(&place))
            || self.referenced_by.iter().any(|it| it.referenced.contains(&place));
        if names || refers {
            return Err(CounterFault::Named);
        }
        match column.generation {
            Generation::None if is_whole(dialect, &column.type_text) => Ok(place),
            Generation::None => Err(CounterFault::NotWhole),
            Generation::Computed
            | Generation::IdentityAlways
            | Generation::IdentityByDefault
            | Generation::AutoIncrement => Err(CounterFault::Computed),
        }
    }
}

/// Whether a column of the type holds whole numbers alone. SQLite may store another value there all
/// the same; the images show it.
fn is_whole(dialect: Dialect, type_text: &str) -> bool {
    let kind = type_text.split(['(', ' ']).next().unwrap_or_default().to_ascii_lowercase();
    match dialect {
        Dialect::Postgres => ["smallint", "integer", "bigint"].contains(&kind.as_str()),
        Dialect::MySql => {
            ["tinyint", "smallint", "mediumint", "int", "bigint"].contains(&kind.as_str())
        }
        Dialect::Sqlite => type_text.to_ascii_uppercase().contains("INT"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FREE: Bounds = Bounds { lower: None, upper: None };
    const STOCK: Bounds = Bounds { lower: Some(0), upper: None };

    fn kind(changes: &[(&str, Bounds, Direction)]) -> DeltaKind {
        DeltaKind::of(changes.iter().copied())
    }

    #[test]
    fn a_bound_splits_the_kinds_by_direction() {
        let (up, down) = (Direction::Up, Direction::Down);
        assert_ne!(kind(&[("units", STOCK, up)]).tag(), kind(&[("units", STOCK, down)]).tag());
        assert_eq!(kind(&[("seen", FREE, up)]).tag(), kind(&[("seen", FREE, down)]).tag());
        // A process that knows of no bound has another kind than one that does.
        assert_ne!(kind(&[("units", FREE, down)]).tag(), kind(&[("units", STOCK, down)]).tag());
    }

    #[test]
    fn the_order_of_columns_is_none() {
        let (one, other) = (("units", STOCK, Direction::Down), ("sold", FREE, Direction::Up));
        assert_eq!(kind(&[one, other]).tag(), kind(&[other, one]).tag());
        assert_ne!(kind(&[one, other]).tag(), kind(&[one]).tag());
    }

    #[test]
    fn two_changes_of_a_row_are_joined() {
        let down = kind(&[("units", STOCK, Direction::Down)]);
        let up = kind(&[("units", STOCK, Direction::Up)]);
        let sold = kind(&[("sold", FREE, Direction::Up)]);
        assert_eq!(down.joined(&down), Some(down.clone()));
        assert_eq!(down.joined(&up), None);
        let both = [("units", STOCK, Direction::Down), ("sold", FREE, Direction::Up)];
        assert_eq!(down.joined(&sold), Some(kind(&both)));
    }

    /// Regression by intent: processes of two versions must give a kind one number.
    #[test]
    fn tags_stay() {
        let tag = kind(&[("units", STOCK, Direction::Down)]).tag();
        assert_eq!(format!("{tag:016x}"), "ab3a4661183ae80a");
    }

    #[test]
    fn what_is_within_two_bounds_is_within_both() {
        let bounds = |lower, upper| Bounds { lower, upper };
        let (most, wide) = (bounds(None, Some(9)), bounds(Some(-1), Some(20)));
        assert_eq!(STOCK.within(most), bounds(Some(0), Some(9)));
        assert_eq!(most.within(STOCK), bounds(Some(0), Some(9)));
        assert_eq!(STOCK.within(most).within(wide), bounds(Some(0), Some(9)));
        assert_eq!(FREE.within(FREE), FREE);
    }

    #[test]
    fn a_bound_is_passed_in_its_direction_only() {
        assert!(STOCK.is_passed(Direction::Down, -1));
        assert!(!STOCK.is_passed(Direction::Down, 0));
        assert!(!STOCK.is_passed(Direction::Up, -1));
        assert!(Bounds { upper: Some(9), ..FREE }.is_passed(Direction::Up, 10));
    }
}
