//! Measures the store in etcd: commits of two sizes, one at a time, on one member and on a cluster
//! of three, all on this machine; and how soon a leader has read many records.
//!
//! `cargo run --release -p handfast-server --example etcd-store-rate`; with
//! `RUST_LOG=handfast_server=debug` each checkpoint is shown.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::Result;
use handfast_core::{
    BranchId, BranchRecord, BranchState, Change, Epoch, FencingToken, Mode, Record, Timestamp, Xid,
};
use handfast_server::store::{CoordinatorNode, EtcdOptions, EtcdStore, EtcdStoreSettings, Store};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};
use tracing_subscriber::EnvFilter;

/// How long each size is measured.
const MEASURED_FOR: Duration = Duration::from_secs(10);
/// How long commits go on beside the checkpoints of many records.
const CARRIED_OVER_FOR: Duration = Duration::from_secs(3);
/// The records that a leader reads, and how many of them are written at a time.
const RECORDS: u64 = 100_000;
const RECORDS_AT_A_TIME: u64 = 1_000;

#[tokio::main]
async fn main() -> Result<()> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).init();
    let directory = ServerDirectory::new()?;
    let single = DatabaseServer::start(ServerKind::Etcd, &directory, &|| Ok(()))?;
    measure("single member", &[single]).await?;
    measure("cluster of three", &DatabaseServer::cluster(ServerKind::Etcd, &directory)?).await
}

async fn measure(name: &str, members: &[DatabaseServer]) -> Result<()> {
    let store = open(members)?;
    let (epoch, _) = store.lead(Epoch(0)).await?;
    for bytes in [600, 40 << 10] {
        let figures = commit(&store, epoch, bytes, MEASURED_FOR).await?;
        say(format_args!("{name}, {bytes} B: {figures}"))?;
    }
    let started = Instant::now();
    for from in (0..RECORDS).step_by(usize::try_from(RECORDS_AT_A_TIME)?) {
        let batch = (from..from + RECORDS_AT_A_TIME).map(|it| Change::Put(record(it, 60)));
        store.commit(epoch, batch.collect()).await?;
    }
    let written = started.elapsed();
    let figures = commit(&store, epoch, 600, CARRIED_OVER_FOR).await?;
    say(format_args!("{name}, while {RECORDS} records are carried over: {figures}"))?;
    store.resign(epoch).await;
    let started = Instant::now();
    let (_, records) = store.lead(Epoch(0)).await?;
    let (count, read) = (records.len(), started.elapsed());
    say(format_args!(
        "{name}: {RECORDS} records written in {written:.1?}, {count} read in {read:.1?}"
    ))
}

/// Commits batches of this many bytes, one at a time, for so long.
async fn commit(
    store: &EtcdStore,
    epoch: Epoch,
    bytes: usize,
    duration: Duration,
) -> Result<String> {
    let mut times = Vec::new();
    let started = Instant::now();
    while started.elapsed() < duration {
        let batch = vec![Change::Put(record(times.len() as u64 % 100, bytes))];
        let sent = Instant::now();
        store.commit(epoch, batch).await?;
        times.push(sent.elapsed());
    }
    let rate = times.len() as f64 / started.elapsed().as_secs_f64();
    times.sort_unstable();
    let [p50, p99] = [50, 99].map(|percent| times[times.len() * percent / 100]);
    Ok(format!("{rate:.0} commits/s, p50 {p50:.2?}, p99 {p99:.2?}"))
}

fn open(members: &[DatabaseServer]) -> Result<EtcdStore> {
    let at = || "127.0.0.1:1".to_owned();
    let (id, version) = ("measured".to_owned(), "0".to_owned());
    let settings = EtcdStoreSettings {
        etcd: EtcdOptions::new(members.iter().map(DatabaseServer::url)),
        namespace: "measured".to_owned(),
        node: CoordinatorNode { id, version, grpc: at(), admin: at(), seata: None },
        lease: Duration::from_secs(60),
        checkpoint_bytes: EtcdStoreSettings::CHECKPOINT_BYTES,
    };
    Ok(EtcdStore::open(settings)?)
}

fn record(number: u64, bytes: usize) -> Record {
    Record::Branch(BranchRecord {
        xid: Xid(1 << 40 | number),
        id: BranchId(1),
        sequence: 0,
        resource: "postgres:orders".into(),
        mode: Mode::At,
        rows: Vec::new(),
        token: FencingToken(number),
        registered_at: Timestamp(1),
        application_data: vec![7; bytes].into(),
        state: BranchState::Registered,
        attempts: 0,
        last_failure: None,
        registered_by: None,
        phase_one_at: None,
        events: [].into(),
        trace: None,
    })
}

fn say(line: std::fmt::Arguments<'_>) -> Result<()> {
    Ok(writeln!(io::stdout(), "{line}")?)
}
