//! Particulars of stores in SQL databases: their locks, errors, tables and settings.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use handfast_core::Epoch;
use handfast_server::store::{SqlSettings, SqlStore, StoreError};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind};
use tokio::task::block_in_place;
use tokio::time::{sleep, timeout};

use crate::gate::{LIMIT, Trap};
use crate::sql_under_test::{Kind, MariaDb, Sql};
use crate::store_under_test::{
    COMPACTING, LONG, SharedStore, StoreUnderTest, named, names, node, put,
};

macro_rules! on_every_kind {
    ($($case:ident),* $(,)?) => {
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case::<crate::sql_under_test::Postgres>().await;
                }
            )*
        }
        mod mariadb {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case::<crate::sql_under_test::MariaDb>().await;
                }
            )*
        }
    };
}
pub(crate) use on_every_kind;

on_every_kind!(
    a_batch_is_one_round_trip,
    a_batch_that_was_rolled_back_is_stored_again,
    an_open_statement_of_the_old_leader_delays_the_mark,
    processes_make_the_tables_at_once,
    namespaces_do_not_see_each_other,
    tables_of_a_later_layout_are_refused,
    a_damaged_journal_is_refused,
    a_password_is_not_shown,
    a_server_that_is_restarted_costs_nothing,
    unsafe_settings_are_refused,
);

async fn a_batch_is_one_round_trip<K: Kind>() {
    let shared = Sql::<K>::create().await;
    let process = shared.process(LONG).await;
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    // The statement is prepared once.
    process.store.commit(epoch, put(1, "first")).await.unwrap();
    let before = process.gate.requests();
    for number in 2..12 {
        process.store.commit(epoch, put(number, "next")).await.unwrap();
    }
    assert_eq!(process.gate.requests() - before, 10);
}

async fn a_batch_that_was_rolled_back_is_stored_again<K: Kind>() {
    let shared = Sql::<K>::create().await;
    let process = shared.process(LONG).await;
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    process.store.commit(epoch, put(0, "first")).await.unwrap();
    let errors = K::passing_errors();
    let count = errors.len() as u64;
    for (error, number) in errors.into_iter().zip(1..) {
        process.gate.set(Trap::Answer(b"rolled back", error));
        process.store.commit(epoch, put(number, "rolled back")).await.unwrap();
        assert!(process.gate.is_sprung());
    }
    let (_, records) = process.store.lead(Epoch(0)).await.unwrap();
    assert_eq!(records.len() as u64, count + 1);
}

/// The statement of the old leader has locked the row that the mark is stored behind, and takes
/// effect after the next process has the lease. That process reads what it has stored.
async fn an_open_statement_of_the_old_leader_delays_the_mark<K: Kind>() {
    let shared = Sql::<K>::create().await;
    let (old, next) = (shared.process(LONG).await, shared.process(LONG).await);
    let (first, _) = old.store.lead(Epoch(0)).await.unwrap();
    old.store.commit(first, put(1, "before")).await.unwrap();
    let (_, last) = shared.batches().await;
    // A row in the place of the next batch, not committed: the statement waits for its end.
    let blocking = format!(
        "INSERT INTO tc_journal (namespace, number, epoch, at, batch) \
         VALUES ('default', {}, 0, 0, '')",
        last + 1
    );
    let blocking = K::begin(&shared.url(), blocking).await;
    let store = Arc::clone(&old.store);
    let open = tokio::spawn(async move { store.commit(first, put(2, "open")).await });
    until_waiting(&shared, 1).await;
    shared.end_lease().await;
    let store = Arc::clone(&next.store);
    let leading = tokio::spawn(async move { store.lead(Epoch(0)).await });
    until_waiting(&shared, 2).await;
    drop(blocking);

    let (second, records) = timeout(LIMIT, leading).await.unwrap().unwrap().unwrap();
    assert!(second > first);
    match timeout(LIMIT, open).await.unwrap().unwrap() {
        Ok(()) => assert_eq!(names(&records), named(&[(1, "before"), (2, "open")])),
        // Its wait ran out, and was to begin again, just as the row was free.
        Err(error) => assert_eq!(error.code(), "HF-TC-LEADERSHIP-LOST"),
    }
    next.store.commit(second, put(3, "after")).await.unwrap();
    let late = old.store.commit(first, put(4, "late")).await;
    assert!(matches!(late, Err(StoreError::LostLeadership)), "{late:?}");
}

async fn until_waiting<K: Kind>(shared: &Sql<K>, count: u64) {
    let waiting = async {
        while shared.number(K::COUNT_WAITERS).await < count {
            // MariaDB does not look again until it was not asked for a tenth of a second.
            sleep(Duration::from_millis(150)).await;
        }
    };
    timeout(LIMIT, waiting).await.expect("statements wait for locks");
}

async fn processes_make_the_tables_at_once<K: Kind>() {
    let shared = Sql::<K>::create().await;
    let opened = join_all((0..6).map(|_| shared.process(LONG))).await;
    let (epoch, records) = opened[0].store.lead(Epoch(0)).await.unwrap();
    assert_eq!(records, []);
    opened[0].store.commit(epoch, put(1, "first")).await.unwrap();
    assert_eq!(shared.batches().await, (0, 2));
}

async fn namespaces_do_not_see_each_other<K: Kind>() {
    let shared = Sql::<K>::create().await;
    let mut processes = Vec::new();
    for namespace in ["one", "two"] {
        let open = shared.open_with(LONG, |settings| settings.namespace = namespace.to_owned());
        let process = open.await;
        let (epoch, records) = process.store.lead(Epoch(0)).await.unwrap();
        assert_eq!(records, []);
        process.store.commit(epoch, put(1, namespace)).await.unwrap();
        processes.push((process, epoch, namespace));
    }
    for (process, epoch, namespace) in processes {
        process.store.confirm(epoch).await.unwrap();
        let (_, records) = process.store.lead(Epoch(0)).await.unwrap();
        assert_eq!(names(&records), named(&[(1, namespace)]));
    }
}

async fn tables_of_a_later_layout_are_refused<K: Kind>() {
    let shared = Sql::<K>::create().await;
    let process = shared.process(LONG).await;
    shared.execute("UPDATE tc_mark SET layout = 3").await;
    let error = process.store.lead(Epoch(0)).await.unwrap_err();
    assert_eq!(error.code(), "HF-TC-STORE-UNUSABLE");
    assert!(error.to_string().contains("start the version that made them"), "{error}");
    let settings = SqlSettings::new(shared.url(), node(9));
    assert_eq!(SqlStore::open(settings).await.unwrap_err().to_string(), refused(&shared, &error));
}

/// Replaces the port in an error of a process, which is that of its gate.
fn refused<K: Kind>(shared: &Sql<K>, error: &StoreError) -> String {
    let text = error.to_string();
    let (before, after) = text.split_once("127.0.0.1:").unwrap();
    let (_, after) = after.split_once('/').unwrap();
    format!("{before}{}/{after}", shared.server())
}

async fn a_damaged_journal_is_refused<K: Kind>() {
    let shared = Sql::<K>::create().await;
    let process = shared.process(LONG).await;
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    for number in 1..=3 {
        process.store.commit(epoch, put(number, "stored")).await.unwrap();
    }
    for (damage, complaint) in [
        (
            "UPDATE tc_journal SET batch = 'damaged' WHERE number = 3",
            "batch 3 of tc_journal cannot",
        ),
        ("DELETE FROM tc_journal WHERE number = 2", "batch 2 of tc_journal is missing"),
    ] {
        shared.execute(damage).await;
        let error = process.store.lead(Epoch(0)).await.unwrap_err();
        assert_eq!(error.code(), "HF-TC-STORE-UNUSABLE");
        assert!(error.to_string().contains(complaint), "{error}");
    }
}

async fn a_password_is_not_shown<K: Kind>() {
    let shared = Sql::<K>::create().await;
    let scheme = if K::SERVER == ServerKind::Postgres { "postgres" } else { "mysql" };
    let urls = [
        format!("{scheme}://nemo:secret@{}/none?{}", shared.server(), K::NO_TLS),
        format!("{scheme}://nemo:secret@127.0.0.1:1/none?{}", K::NO_TLS),
        format!("{scheme}://nemo:secret@127.0.0.1:none/none"),
        "sqlite://nemo:secret@host".to_owned(),
        "nemo:secret".to_owned(),
    ];
    for url in urls {
        let settings = SqlSettings::new(url, node(1));
        let shown = format!("{settings:?}");
        let opened = SqlStore::open(settings).await;
        let shown = match &opened {
            Ok(_) => format!("{shown} {opened:?}"),
            Err(error) => format!("{shown} {error} {error:?}"),
        };
        assert!(!shown.contains("secret"), "{shown}");
    }
}

/// The packet of the server, 16 MiB by default, bounds a batch. One just below it can be stored,
/// read and carried over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_above_the_packet_of_mariadb_is_refused() {
    let shared = Sql::<MariaDb>::create().await;
    let process = shared.process(COMPACTING).await;
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    // It cannot be compressed.
    let noise = |bytes: usize| {
        let letters = rand::random_iter::<u8>().map(|byte| char::from(b'a' + byte % 26));
        letters.take(bytes).collect::<String>()
    };
    let large = noise((16 << 20) - (65 << 10));
    process.store.commit(epoch, put(1, &large)).await.unwrap();
    while shared.batches().await.0 < 2 {
        process.store.commit(epoch, put(2, "behind it")).await.unwrap();
    }
    let larger = noise(16 << 20);
    let error = process.store.commit(epoch, put(3, &larger)).await.unwrap_err();
    assert_eq!(error.code(), "HF-TC-STORE-UNUSABLE");
    assert!(error.to_string().contains("raise its `max_allowed_packet`"), "{error}");
    let (_, records) = process.store.lead(Epoch(0)).await.unwrap();
    assert!(names(&records) == named(&[(1, &large), (2, "behind it")]), "{}", records.len());
}

/// Starts a server for one test.
fn start(kind: ServerKind) -> DatabaseServer {
    let directory = ServerDirectory::new().unwrap();
    block_in_place(|| DatabaseServer::start(kind, &directory, &|| Ok(())).unwrap())
}

async fn a_server_that_is_restarted_costs_nothing<K: Kind>() {
    let mut server = start(K::SERVER);
    let shared = Sql::<K>::on(&server.url()).await;
    let process = shared.process(LONG).await;
    let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
    process.store.commit(epoch, put(1, "before")).await.unwrap();
    block_in_place(|| server.kill().unwrap());
    let store = Arc::clone(&process.store);
    let commit = tokio::spawn(async move { store.commit(epoch, put(2, "meanwhile")).await });
    let waiting = shared.process(LONG).await;
    let store = Arc::clone(&waiting.store);
    let leading = tokio::spawn(async move { store.lead(Epoch(0)).await });
    block_in_place(|| server.restart().unwrap());

    timeout(LIMIT, commit).await.unwrap().unwrap().unwrap();
    process.store.confirm(epoch).await.unwrap();
    process.store.commit(epoch, put(3, "after")).await.unwrap();
    process.store.resign(epoch).await;
    let (_, records) = timeout(LIMIT, leading).await.unwrap().unwrap().unwrap();
    assert_eq!(names(&records), named(&[(1, "before"), (2, "meanwhile"), (3, "after")]));
}

/// Settings of a server, and the word of the complaint; `None` if they are safe.
const SETTINGS: &[(ServerKind, &[&str], Option<&str>)] = &[
    (ServerKind::Postgres, &["fsync=off"], Some("`fsync` is off")),
    (ServerKind::Postgres, &["full_page_writes=off"], Some("`full_page_writes` is off")),
    // The store's own connections are durable all the same.
    (ServerKind::Postgres, &["synchronous_commit=off"], None),
    (ServerKind::Postgres, &["default_transaction_isolation=serializable"], None),
    (
        ServerKind::MariaDb,
        &["innodb-flush-log-at-trx-commit=2"],
        Some("`innodb_flush_log_at_trx_commit` is not 1"),
    ),
    (ServerKind::MariaDb, &["read-only=1"], Some("`read_only` is on")),
    (ServerKind::MariaDb, &["max-allowed-packet=1M"], Some("`max_allowed_packet` is less")),
    (ServerKind::MariaDb, &["default-time-zone=+05:30", "autocommit=0"], None),
    // These are the last: a killed server with a binary log may leave transactions prepared, and
    // does not start without that log.
    (ServerKind::MariaDb, &["log-bin=binlog", "sync-binlog=0"], Some("`sync_binlog` is not 1")),
    (ServerKind::MariaDb, &["log-bin=binlog", "sync-binlog=1"], None),
];

async fn unsafe_settings_are_refused<K: Kind>() {
    let mut server = start(K::SERVER);
    let shared = Sql::<K>::on(&server.url()).await;
    let of_kind = SETTINGS.iter().filter(|(kind, ..)| *kind == K::SERVER);
    for (_, changed, complaint) in of_kind {
        block_in_place(|| server.restart_with(changed).unwrap());
        let mut settings = SqlSettings::new(shared.url(), node(1));
        let opened = SqlStore::open(settings.clone()).await;
        if let Some(complaint) = complaint {
            let error = opened.unwrap_err();
            assert_eq!(error.code(), "HF-TC-STORE-UNUSABLE");
            assert!(error.to_string().contains(complaint), "{changed:?}: {error}");
            settings.allow_unsafe = true;
            SqlStore::open(settings).await.unwrap();
        } else {
            drop(opened.unwrap());
            let process = shared.process(LONG).await;
            let (epoch, _) = process.store.lead(Epoch(0)).await.unwrap();
            process.store.commit(epoch, put(1, "stored")).await.unwrap();
            process.store.confirm(epoch).await.unwrap();
            // Before the server stops, which would leave the next process without the lead.
            process.store.resign(epoch).await;
        }
    }
}
