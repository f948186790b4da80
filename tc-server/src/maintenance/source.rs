//! Opens the store that a configuration names, to read it or to lead it.

use std::sync::Arc;
use std::time::Duration;

use handfast_core::{Epoch, Record};
use tokio::time::timeout;

use super::{MaintenanceError, failed};
use crate::config::{Config, StoreKind};
use crate::serve::stores::{self, OpenedStore};
use crate::store::{CoordinatorNode, Leader, SnapshotOrigin, Store, StoreError, holds_records};

/// How long a shared store is waited for beyond two of its leases, after which the lease of a
/// process that has ended is over for certain.
const LEAD_LIMIT: Duration = Duration::from_secs(3);

/// The content of a store.
#[derive(Debug)]
pub struct StoredRecords {
    /// The store, and how far it has come.
    pub origin: SnapshotOrigin,
    /// All records.
    pub records: Vec<Record>,
}

/// A store that this process leads, and the records that it found there.
#[derive(Debug)]
pub(super) struct LedStore {
    pub(super) place: String,
    pub(super) store: Arc<dyn Store>,
    pub(super) epoch: Epoch,
    pub(super) records: Vec<Record>,
    /// How long gaining the lead may take.
    pub(super) limit: Duration,
}

/// Returns the name of a store that is the same for every process, without secrets.
#[must_use]
pub fn place_of(config: &Config) -> String {
    let namespace = &config.cluster.namespace;
    match config.store {
        StoreKind::Memory => "the store in memory".to_owned(),
        StoreKind::Embedded => {
            let directory = std::path::absolute(&config.data_dir);
            let directory = directory.unwrap_or_else(|_| config.data_dir.clone());
            format!("the directory {}", directory.display())
        }
        StoreKind::Sql => {
            let url = config.sql.url.as_deref().unwrap_or_default();
            format!("the database {url}, namespace {namespace}")
        }
        StoreKind::Etcd => {
            format!("etcd at {}, namespace {namespace}", config.etcd.endpoints.join(" and "))
        }
    }
}

/// Reads all records without leading the store, and without changing what is in it. A shared store
/// may be in use.
///
/// # Errors
///
/// There is no store, or it cannot be read.
pub async fn read_records(config: &Config) -> Result<StoredRecords, MaintenanceError> {
    let place = place_of(config);
    let failed = failed(&place);
    let none = |reason: &str| {
        let (place, reason) = (place.clone(), reason.to_owned());
        MaintenanceError::NoStore { place, reason }
    };
    match config.store {
        StoreKind::Memory => Err(MaintenanceError::InMemory),
        // Opening would make the store.
        StoreKind::Embedded if !holds_records(&config.data_dir) => {
            Err(none("the directory has no part of a store"))
        }
        StoreKind::Embedded | StoreKind::Etcd => {
            let OpenedStore { store, records } = open(config).await?;
            let source = records.upgrade().expect("the store is open");
            let snapshot = source.snapshot().await.map_err(&failed)?;
            let origin = snapshot.origin.clone();
            let records = snapshot.records().await.map_err(&failed)?;
            // `close` waits for the store's end, which comes with the last reference.
            drop(source);
            close(store).await;
            Ok(StoredRecords { origin, records })
        }
        StoreKind::Sql => {
            let settings = stores::sql_settings(config, node());
            let settings = settings.map_err(|error| MaintenanceError::Start(error.into()))?;
            let snapshot = settings.snapshot().await.map_err(&failed)?;
            let origin = snapshot.origin.clone();
            Ok(StoredRecords { origin, records: snapshot.records().await.map_err(&failed)? })
        }
    }
}

/// Leads a store, which shuts out every coordinator. One that runs keeps its lead, and is named.
pub(super) async fn lead(config: &Config, at_least: Epoch) -> Result<LedStore, MaintenanceError> {
    if config.store == StoreKind::Memory {
        return Err(MaintenanceError::InMemory);
    }
    let place = place_of(config);
    let OpenedStore { store, .. } = open(config).await?;
    let limit = 2 * Duration::from_millis(config.cluster.lease_ms) + LEAD_LIMIT;
    let mut led = LedStore { place, store, epoch: at_least, records: Vec::new(), limit };
    led.lead_again().await?;
    Ok(led)
}

fn not_led(place: String, leader: &Leader) -> MaintenanceError {
    match leader {
        Leader::Elsewhere { node, .. } => {
            let by = format!(", node {} at {}", node.id, node.admin);
            MaintenanceError::InUse { place, by }
        }
        Leader::Unknown | Leader::Here => MaintenanceError::Unanswered { place },
    }
}

impl LedStore {
    /// Takes the lead in a later epoch, and reads the records. Waits no longer than the limit:
    /// another candidate may have taken the lead, or the database may be away.
    pub(super) async fn lead_again(&mut self) -> Result<(), MaintenanceError> {
        match timeout(self.limit, self.store.lead(self.epoch)).await {
            Ok(led) => {
                (self.epoch, self.records) = led.map_err(failed(&self.place))?;
                Ok(())
            }
            Err(_elapsed) => Err(not_led(self.place.clone(), &self.store.leader().borrow())),
        }
    }

    /// Gives up the lead, and waits until the store is free.
    pub(super) async fn release(self) {
        self.store.resign(self.epoch).await;
        close(self.store).await;
    }
}

async fn open(config: &Config) -> Result<OpenedStore, MaintenanceError> {
    let opened = stores::open(config, node()).await;
    opened.map_err(|error| match error.into_store_error() {
        Ok(StoreError::DirectoryLocked { holder, .. }) => {
            let by = format!(", {holder}");
            MaintenanceError::InUse { place: place_of(config), by }
        }
        Ok(source) => MaintenanceError::Store { place: place_of(config), source },
        Err(error) => error.into(),
    })
}

async fn close(store: Arc<dyn Store>) {
    // If the store's thread panicked, that was logged already.
    let _ = crate::serve::runtime::close(Some(store)).await;
}

/// Returns this process, as coordinators see it that wait for the store.
fn node() -> CoordinatorNode {
    CoordinatorNode {
        id: "maintenance".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        grpc: "unreachable.invalid:0".to_owned(),
        admin: "unreachable.invalid:0".to_owned(),
        seata: None,
    }
}
