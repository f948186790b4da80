//! The rows that go along with those of a statement, as they are found: by table, each once.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use handfast_rm_core::plan::along::{self, AlongImage, reason};
use handfast_rm_core::plan::{Dialect, ForeignKey, StatementRefusal, undo_sql};

use crate::at::database::bind::rows_max;
use crate::at::database::value::Value;
use crate::at::database::{Backend, LoadedTable};
use crate::at::error::AtError;
use crate::at::undo::image::{Image, ImageRow, part, values_of};

/// The rows that go along with those of one statement.
pub(in crate::at::phase_one::statement) struct Along<DB: Backend> {
    /// The rows that are deleted, by table: those of the statement's own table come first, with the
    /// statement's own rows in front.
    pub(super) removed: Vec<Removed<DB>>,
    pub(super) reset: Vec<Reset<DB>>,
    /// The indexes of `removed` as they can be put back.
    pub(super) order: Vec<usize>,
    /// How many rows are the statement's own.
    pub(super) own: usize,
}

/// Rows of a table that are deleted.
pub(super) struct Removed<DB: Backend> {
    pub(super) loaded: Arc<LoadedTable<DB>>,
    pub(super) columns: Vec<usize>,
    pub(super) image: Image,
    pub(super) keys: HashSet<Box<[u8]>>,
}

/// Rows of a table that get NULL or a default for what they refer by.
pub(super) struct Reset<DB: Backend> {
    pub(super) loaded: Arc<LoadedTable<DB>>,
    /// One of the foreign keys.
    pub(super) key: ForeignKey,
    /// The columns that are set.
    pub(super) assigned: BTreeSet<usize>,
    /// The key values of the rows; some may turn out to be deleted.
    pub(super) named: Vec<Vec<Value>>,
    pub(super) image: Option<AlongImage>,
    pub(super) before: Image,
    pub(super) after: Image,
}

impl<DB: Backend> Along<DB> {
    pub(super) fn of(loaded: Arc<LoadedTable<DB>>, columns: &[usize], image: Image) -> Self {
        let own = image.len();
        let keys = image.iter().map(|row| row.key.clone()).collect();
        let removed = Removed { loaded, columns: columns.to_vec(), image, keys };
        Self { removed: vec![removed], reset: Vec::new(), order: vec![0], own }
    }

    /// The statement's own rows.
    pub(in crate::at::phase_one::statement) fn own_rows(&self) -> &[ImageRow] {
        &self.removed[0].image[..self.own]
    }

    /// Whether no other row goes along with them.
    pub(in crate::at::phase_one::statement) fn is_empty(&self) -> bool {
        let rows: usize = self.removed.iter().map(|removed| removed.image.len()).sum();
        rows == self.own && self.reset.iter().all(|reset| reset.before.is_empty())
    }

    pub(super) fn table(&mut self, loaded: &Arc<LoadedTable<DB>>, columns: &[usize]) -> usize {
        let known = self.removed.iter().position(|removed| removed.is_of(loaded));
        known.unwrap_or_else(|| {
            let (loaded, columns) = (Arc::clone(loaded), columns.to_vec());
            let (image, keys) = (Image::new(), HashSet::new());
            self.removed.push(Removed { loaded, columns, image, keys });
            self.removed.len() - 1
        })
    }

    pub(super) fn reset(
        &mut self,
        key: &ForeignKey,
        loaded: Arc<LoadedTable<DB>>,
        named: Vec<Vec<Value>>,
    ) -> Result<(), AtError> {
        let columns = key.referring.columns.iter();
        let places = columns.map(|name| loaded.table.column(DB::DIALECT, name));
        let Some(places) = places.collect::<Option<Vec<usize>>>() else {
            return Err(limit(key, reason::UNSEEN));
        };
        let known = self.reset.iter().position(|reset| reset.is_of(&loaded));
        let at = known.unwrap_or_else(|| {
            self.reset.push(Reset {
                loaded,
                key: key.clone(),
                assigned: BTreeSet::new(),
                named: Vec::new(),
                image: None,
                before: Image::new(),
                after: Image::new(),
            });
            self.reset.len() - 1
        });
        self.reset[at].assigned.extend(places);
        self.reset[at].named.extend(named);
        Ok(())
    }

    /// Refuses rows of one table that go along under several names of it, such as a partition's:
    /// they could not be told apart.
    pub(super) fn require_one_name(
        &self,
        key: &ForeignKey,
        loaded: &LoadedTable<DB>,
    ) -> Result<(), AtError> {
        let removed = self.removed.iter().map(|removed| &removed.loaded);
        let mut tables = removed.chain(self.reset.iter().map(|reset| &reset.loaded));
        let differs = |other: &&Arc<LoadedTable<DB>>| {
            other.lock_name == loaded.lock_name
                && other.table.full_name() != loaded.table.full_name()
        };
        match tables.find(differs) {
            Some(_) => Err(limit(key, reason::SEVERAL_NAMES)),
            None => Ok(()),
        }
    }

    pub(super) fn require_few(&self, key: &ForeignKey) -> Result<(), AtError> {
        let removed: usize = self.removed.iter().map(|removed| removed.image.len()).sum();
        let reset: usize = self.reset.iter().map(|reset| reset.named.len()).sum();
        if removed - self.own + reset > along::ROWS_MAX {
            return Err(limit(key, reason::TOO_MANY));
        }
        Ok(())
    }

    /// Finds the order in which the rows can be put back.
    pub(super) fn find_order(&mut self) -> Result<(), AtError> {
        let along = self.removed.len() > 1 || self.removed[0].image.len() > self.own;
        if !along {
            return Ok(());
        }
        let tables: Vec<_> = self.removed.iter().map(|removed| &removed.loaded.table).collect();
        let refers = |from: usize, key: &ForeignKey| self.removed[from].refers(key);
        let order = along::parents_first(&tables, refers);
        let circular = self.removed.iter().find_map(Removed::circular_key);
        let any_key = || self.removed[0].loaded.table.acting_on_delete().next();
        match (order, circular) {
            (Some(order), None) => self.order = order,
            // SQLite checks foreign keys when everything is back.
            (order, _) if DB::DIALECT == Dialect::Sqlite => {
                self.order = order.unwrap_or_else(|| (0..self.removed.len()).collect());
            }
            (_, circular) => {
                let key = circular.or_else(any_key);
                let constraint = key.map(|key| key.name.clone()).unwrap_or_default();
                let reason = reason::CIRCULAR;
                return Err(StatementRefusal::CascadeLimit { constraint, reason }.into());
            }
        }
        Ok(())
    }
}

impl<DB: Backend> Removed<DB> {
    pub(super) fn is_of(&self, loaded: &LoadedTable<DB>) -> bool {
        self.loaded.table.full_name() == loaded.table.full_name()
    }

    /// Whether some row refers to anything along a key of this table.
    fn refers(&self, key: &ForeignKey) -> bool {
        let columns = key.referring.columns.iter();
        let places = columns.map(|name| self.loaded.table.column(DB::DIALECT, name));
        let Some(places) = places.collect::<Option<Vec<usize>>>() else { return true };
        self.image.iter().any(|row| part(&self.columns, &row.values, &places).is_some())
    }

    /// The foreign key to the table itself by which rows refer to each other in a circle, where
    /// those would not be put back in one statement.
    fn circular_key(&self) -> Option<&ForeignKey> {
        let stored = self.loaded.table.stored().len();
        if DB::DIALECT != Dialect::MySql && self.image.len() <= rows_max::<DB>(stored) {
            return None;
        }
        let mut ahead = vec![Vec::new(); self.image.len()];
        let own = self.loaded.table.referenced_by.iter().filter(|key| !key.own_columns.is_empty());
        let mut last = None;
        for key in own {
            let link = |values: &Vec<Value>| {
                (
                    part(&self.columns, values, &key.referenced),
                    part(&self.columns, values, &key.own_columns),
                )
            };
            let links: Vec<_> = values_of(&self.image).map(link).collect();
            for (ahead, more) in ahead.iter_mut().zip(undo_sql::referred_rows(&links)) {
                ahead.extend(more);
            }
            last = Some(key);
        }
        last.filter(|_| undo_sql::is_circular(&ahead))
    }
}

impl<DB: Backend> Reset<DB> {
    pub(super) fn is_of(&self, loaded: &LoadedTable<DB>) -> bool {
        self.loaded.table.full_name() == loaded.table.full_name()
    }
}

pub(super) fn limit(key: &ForeignKey, reason: &'static str) -> AtError {
    StatementRefusal::CascadeLimit { constraint: key.name.clone(), reason }.into()
}
