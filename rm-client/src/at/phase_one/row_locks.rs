//! The rows whose global locks a branch needs, gathered statement by statement.

use std::collections::{BTreeMap, BTreeSet};

use handfast_proto::v1::{LockMode as WireMode, RowKeys};

/// How a row is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RowLockMode {
    Shared,
    Exclusive,
}

/// Rows by table, each in the strongest mode asked for.
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
            let held = rows.entry(key).or_insert(mode);
            *held = mode.max(*held);
        }
    }

    /// Converts to wire messages, in one order, so that equal sets are equal messages.
    pub(crate) fn to_wire(&self) -> Vec<RowKeys> {
        let mut wire = Vec::new();
        for (table, rows) in &self.tables {
            for mode in [RowLockMode::Exclusive, RowLockMode::Shared] {
                let keys: BTreeSet<&[u8]> = rows
                    .iter()
                    .filter(|(_, held)| **held == mode)
                    .map(|(key, _)| key.as_ref())
                    .collect();
                if !keys.is_empty() {
                    wire.push(RowKeys {
                        table: table.clone(),
                        mode: mode.to_wire().into(),
                        keys: keys.into_iter().map(<[u8]>::to_vec).collect(),
                    });
                }
            }
        }
        wire
    }
}

impl RowLockMode {
    fn to_wire(self) -> WireMode {
        match self {
            Self::Shared => WireMode::Shared,
            Self::Exclusive => WireMode::Exclusive,
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn no_rows_leave_no_table() {
        let mut locks = RowLocks::default();
        locks.add("main.stock", RowLockMode::Exclusive, []);
        assert!(locks.is_empty());
    }
}
