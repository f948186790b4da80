//! The rows whose global locks a branch needs, gathered statement by statement.

use std::collections::BTreeMap;

use handfast_proto::v1::{LockMode as WireMode, RowKeys};
use handfast_rm_core::plan::DeltaKind;

/// How a row is locked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowLockMode {
    Shared,
    /// Together with globals whose changes are of the same kind.
    Delta(DeltaKind),
    Exclusive,
}

/// Rows by table, each in a mode that allows all that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowLocks {
    tables: BTreeMap<String, BTreeMap<Box<[u8]>, RowLockMode>>,
}

impl RowLocks {
    pub(crate) fn is_empty(&self) -> bool {
        self.tables.is_empty()
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.tables.values().map(BTreeMap::len).sum()
    }

    /// Adds rows of a table, named `schema.table` as the catalogue spells it.
    pub(crate) fn add(
        &mut self,
        table: &str,
        mode: RowLockMode,
        keys: impl IntoIterator<Item = Box<[u8]>>,
    ) {
        let mut keys = keys.into_iter().peekable();
        // A table without rows must not count: a branch that locks nothing is not registered.
        if keys.peek().is_none() {
            return;
        }
        let rows = self.tables.entry(table.to_owned()).or_default();
        for key in keys {
            let held = rows.entry(key).or_insert_with(|| mode.clone());
            *held = held.joined(&mode);
        }
    }

    /// Returns table and key of the only row.
    pub(crate) fn only(&self) -> Option<(&str, &[u8])> {
        let (table, rows) = self.tables.first_key_value()?;
        let (key, _) = rows.first_key_value()?;
        (self.len() == 1).then_some((table, key))
    }

    /// Returns whether a branch that holds these rows may do all that the others allow.
    pub(crate) fn cover(&self, others: &Self) -> bool {
        others.tables.iter().all(|(table, rows)| {
            let held = self.tables.get(table);
            rows.iter().all(|(key, mode)| {
                let held = held.and_then(|held| held.get(key));
                held.is_some_and(|held| held == mode || *held == RowLockMode::Exclusive)
            })
        })
    }

    /// Converts to wire messages, in one order, so that equal sets are equal messages.
    pub(crate) fn to_wire(&self) -> Vec<RowKeys> {
        let mut wire = Vec::new();
        for (table, rows) in &self.tables {
            let mut modes = BTreeMap::<(i32, u64), Vec<Vec<u8>>>::new();
            for (key, mode) in rows {
                modes.entry(mode.to_wire()).or_default().push(key.to_vec());
            }
            wire.extend(modes.into_iter().map(|((mode, delta_tag), keys)| {
                let table = table.clone();
                RowKeys { table, mode, keys, delta_tag }
            }));
        }
        wire
    }
}

impl RowLockMode {
    /// The mode that allows what both allow. A change commutes with others of its kind only as long
    /// as nothing else is done with the row.
    fn joined(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::Delta(one), Self::Delta(other)) => {
                one.joined(other).map_or(Self::Exclusive, Self::Delta)
            }
            (one, other) if one == other => one.clone(),
            _ => Self::Exclusive,
        }
    }

    fn to_wire(&self) -> (i32, u64) {
        match self {
            Self::Shared => (WireMode::Shared.into(), 0),
            Self::Delta(kind) => (WireMode::Delta.into(), kind.tag()),
            Self::Exclusive => (WireMode::Exclusive.into(), 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use handfast_rm_core::plan::{Bounds, Direction};

    use super::*;

    #[test]
    fn a_row_is_named_once_in_its_strongest_mode() {
        let mut locks = RowLocks::default();
        let key = || Box::<[u8]>::from(*b"1:7");
        locks.add("main.stock", RowLockMode::Shared, [key(), Box::from(*b"1:8")]);
        locks.add("main.stock", RowLockMode::Exclusive, [key()]);
        locks.add("main.stock", RowLockMode::Shared, [key()]);
        let wire = locks.to_wire();
        assert_eq!(wire.len(), 2);
        assert_eq!((wire[0].mode(), &wire[0].keys), (WireMode::Exclusive, &vec![b"1:7".to_vec()]));
        assert_eq!((wire[1].mode(), &wire[1].keys), (WireMode::Shared, &vec![b"1:8".to_vec()]));
    }

    #[test]
    fn a_row_that_is_read_and_added_to_is_locked_for_itself() {
        let bounds = Bounds { lower: Some(0), upper: None };
        let kind = |direction| DeltaKind::of([("units", bounds, direction)]);
        let (down, up) = (kind(Direction::Down), kind(Direction::Up));
        let mut locks = RowLocks::default();
        let keys = ["1:7", "1:8", "1:9"].map(|key| Box::<[u8]>::from(key.as_bytes()));
        locks.add("main.stock", RowLockMode::Delta(down.clone()), keys.clone());
        assert!(locks.cover(&locks));
        let granted = locks.clone();
        locks.add("main.stock", RowLockMode::Delta(up), [keys[0].clone()]);
        locks.add("main.stock", RowLockMode::Shared, [keys[1].clone()]);
        let wire = locks.to_wire();
        let modes: Vec<_> = wire.iter().map(|rows| (rows.mode(), rows.keys.len())).collect();
        assert_eq!(modes, [(WireMode::Exclusive, 2), (WireMode::Delta, 1)]);
        assert_eq!(wire[1].delta_tag, down.tag());
        assert!(locks.cover(&granted) && !granted.cover(&locks));
    }

    #[test]
    fn no_rows_leave_no_table() {
        let mut locks = RowLocks::default();
        locks.add("main.stock", RowLockMode::Exclusive, []);
        assert!(locks.is_empty());
    }
}
