//! The tables, and the check of the server before they are used.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::connection::{ConnectionSlot, Value};
use super::dialect::CallError;
use crate::store::journal::frame::Seed;

/// The layout of the tables that this program makes, and the latest that it reads. In the first one
/// batches are frames, in the second they may be compressed.
pub(super) const LAYOUT: u64 = 2;
/// The layout of a program that tells none.
pub(super) const FIRST_LAYOUT: u64 = 1;

/// Attempts at making the tables: when two processes do so at once, PostgreSQL refuses one.
const ATTEMPTS_MAX: u32 = 10;
const PAUSE: Duration = Duration::from_millis(50);

/// The facts of a store that can be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ground {
    /// The seed of the journal's checksums.
    pub(super) seed: Seed,
    /// The largest batch that the server takes, in bytes.
    pub(super) batch_bytes_max: usize,
}

/// The layout of the tables, as far as this process knows.
///
/// A program of an earlier version refuses tables of a later layout, and can take over those of its
/// own. So tables get a later layout only when all nodes that are noted read it. New ones have the
/// latest.
#[derive(Debug, Default)]
pub(super) struct KnownLayout(AtomicU64);

impl KnownLayout {
    fn note(&self, layout: u64) {
        self.0.store(layout, Ordering::Relaxed);
    }

    /// Returns whether batches may be compressed.
    pub(super) fn may_compress(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= LAYOUT
    }

    /// Raises the layout of the tables to that of this program. All nodes must read it.
    pub(super) async fn raise(&self, slot: &mut ConnectionSlot) -> Result<(), CallError> {
        let sql = slot.database().dialect.statements().raise_layout;
        let namespace = slot.database().namespace.clone();
        let layout = Value::Number(LAYOUT);
        slot.execute(sql, &[layout, Value::Text(&namespace), layout]).await?;
        // It is durable before the first batch that an earlier version cannot read.
        self.note(LAYOUT);
        Ok(())
    }
}

/// Checks the server's settings, and makes what is missing of the tables and of this namespace's
/// rows.
pub(super) async fn prepare(
    slot: &mut ConnectionSlot,
    allow_unsafe: bool,
    known_layout: &KnownLayout,
) -> Result<Ground, CallError> {
    let batch_bytes_max = check_server(slot, allow_unsafe).await?;
    make_tables(slot).await?;
    make_rows(slot).await?;
    // They are read, not taken from `make_rows`: another process may have made the row.
    let (seed, layout) = read_mark(slot).await?;
    known_layout.note(layout);
    Ok(Ground { seed, batch_bytes_max })
}

/// Refuses a server that is a replica.
///
/// # Errors
///
/// [`CallError::Replica`] then.
pub(super) async fn refuse_replica(slot: &mut ConnectionSlot) -> Result<(), CallError> {
    let replica = slot.database().dialect.clone().replica(&settings(slot).await?);
    replica.map_or(Ok(()), |replica| Err(CallError::Replica(replica)))
}

async fn settings(slot: &mut ConnectionSlot) -> Result<Vec<(String, String)>, CallError> {
    let sql = slot.database().dialect.statements().server_settings;
    let mut settings = Vec::new();
    for mut row in slot.fetch(sql, &[]).await? {
        settings.push((row.text()?, row.text()?));
    }
    Ok(settings)
}

async fn check_server(slot: &mut ConnectionSlot, allow_unsafe: bool) -> Result<usize, CallError> {
    let dialect = slot.database().dialect.clone();
    let settings = settings(slot).await?;
    let (complaints, replica) = (dialect.complaints(&settings), dialect.replica(&settings));
    if !allow_unsafe {
        if !complaints.is_empty() {
            return Err(CallError::Lasting(complaints.join("; ")));
        }
        if let Some(replica) = replica {
            return Err(CallError::Replica(replica));
        }
    } else if !complaints.is_empty() || replica.is_some() {
        let complaints = complaints.into_iter().chain(replica).collect::<Vec<_>>().join("; ");
        let store = &*slot.database().name;
        tracing::warn!(store, complaints, "the database may lose acknowledged changes");
    }
    Ok(dialect.batch_bytes_max(&settings))
}

/// Makes the tables unless they are there, so that an account without the right to make them can
/// use them.
async fn make_tables(slot: &mut ConnectionSlot) -> Result<(), CallError> {
    let statements = slot.database().dialect.statements();
    for attempt in 1.. {
        let found = look_at_tables(slot).await;
        // A table that is missing is a lasting error. Any other is the caller's to retry.
        if !matches!(found, Err(CallError::Lasting(_))) {
            return found;
        }
        match make_all(slot, statements.create_tables).await {
            Err(error) if attempt == ATTEMPTS_MAX => return Err(error),
            Err(_) => tokio::time::sleep(PAUSE).await,
            Ok(()) => return Ok(()),
        }
    }
    Ok(())
}

/// Reads the last table that is made, and the one that a store of an earlier version lacks.
async fn look_at_tables(slot: &mut ConnectionSlot) -> Result<(), CallError> {
    let statements = slot.database().dialect.statements();
    let namespace = slot.database().namespace.clone();
    let namespace = Value::Text(&namespace);
    slot.fetch(statements.nodes, &[namespace, Value::Number(1)]).await?;
    slot.fetch(statements.mark, &[namespace]).await.map(drop)
}

async fn make_all(slot: &mut ConnectionSlot, tables: &[&'static str]) -> Result<(), CallError> {
    for create in tables {
        slot.execute(create, &[]).await?;
    }
    Ok(())
}

async fn make_rows(slot: &mut ConnectionSlot) -> Result<(), CallError> {
    let statements = slot.database().dialect.statements();
    let namespace = slot.database().namespace.clone();
    let namespace = Value::Text(&namespace);
    let cluster_id: [u8; 16] = rand::random();
    let mark = [namespace, Value::Bytes(&cluster_id), Value::Number(LAYOUT)];
    slot.execute(statements.make_mark, &mark).await?;
    slot.execute(statements.make_lease, &[namespace]).await?;
    // This comes behind the mark, which it reads: a journal that was compacted gets no second row
    // 0.
    slot.execute(statements.make_journal, &[namespace]).await?;
    Ok(())
}

/// Returns the seed and the layout.
async fn read_mark(slot: &mut ConnectionSlot) -> Result<(Seed, u64), CallError> {
    let statements = slot.database().dialect.statements();
    let namespace = slot.database().namespace.clone();
    let rows = slot.fetch(statements.mark, &[Value::Text(&namespace)]).await?;
    let missing = || CallError::Again("the row of tc_mark is gone".to_owned());
    let mut row = rows.into_iter().next().ok_or_else(missing)?;
    let (_, cluster_id, layout) = (row.number()?, row.bytes()?, row.number()?);
    if layout > LAYOUT {
        return Err(CallError::Lasting(format!(
            "its tables have layout {layout}, which this version does not know: start the version \
             that made them"
        )));
    }
    Ok((Seed::of_cluster(&cluster_id), layout))
}
