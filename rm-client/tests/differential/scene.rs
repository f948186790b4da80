//! A coordinator, a database behind the library, and its twin that the library does not know.

use std::time::Duration;

use handfast::{At, AtResource, Global, GlobalStatus, Handfast, Xid};
use handfast_server::dispatch;
use handfast_server::embedded::{RunningServer, Server};
use sqlx::{Pool, Transaction};

use crate::database::{TextRow, Twin, Twins};
use crate::schema::{Schema, TABLES_MAX, trusted_triggers};
use crate::table::{Role, Table};
use crate::witness::Witness;

/// What a run plays on.
pub(crate) struct Scene<DB: Twin> {
    pub(crate) server: RunningServer,
    pub(crate) handfast: Handfast,
    pub(crate) resource: AtResource<DB>,
    /// The same database, for a global that does not wait.
    pub(crate) rival: AtResource<DB>,
    pub(crate) ours: Pool<DB>,
    pub(crate) plain: Pool<DB>,
    /// What the library's database reports of itself.
    pub(crate) witness: Witness,
    _directory: Option<tempfile::TempDir>,
}

/// Rows of every table of a schema, sorted.
pub(crate) type Snapshot = Vec<Vec<TextRow>>;

/// Which columns are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    All,
    /// Those in which twins do not differ.
    Alike,
}

impl<DB: Twin> Scene<DB> {
    /// MariaDB takes statements apart or together, `compound_statements` says.
    pub(crate) async fn new(compound_statements: bool) -> Self {
        let pacing = dispatch::Settings {
            retry_delay_ms_min: 1,
            retry_delay_ms_max: 20,
            ..dispatch::Settings::default()
        };
        let server = Server::builder().memory().listen("127.0.0.1:0").dispatch(pacing);
        let server = server.start().await.unwrap();
        let endpoint = format!("http://{}", server.address());
        let handfast = Handfast::connect(endpoint).application("differential").await.unwrap();
        let Twins { ours, plain, directory, witness } = DB::create().await;
        handfast.migrate(&ours).await.unwrap();
        // The last one registered is the one that phase two is asked of: it has to know which
        // branches have ended.
        let rival = trusting(handfast.at(ours.clone()).lock_timeout(Duration::ZERO));
        let rival = rival.await.unwrap();
        let resource = handfast.at(ours.clone()).compound_statements(compound_statements);
        let resource = trusting(resource).await.unwrap();
        Self { server, handfast, resource, rival, ours, plain, witness, _directory: directory }
    }

    pub(crate) async fn begin(&self) -> Global {
        self.handfast.transaction("differential").begin().await.unwrap()
    }

    /// Asks until the global stands as expected; the coordinator gets there by itself. Gives up
    /// when it asks for a person.
    pub(crate) async fn await_status(
        &self,
        xid: &Xid,
        expected: impl Fn(GlobalStatus) -> bool,
    ) -> Result<(), GlobalStatus> {
        let stuck = |status| matches!(status, GlobalStatus::NeedsOperator(_));
        let status = self.ask_until(xid, |status| expected(status) || stuck(status)).await;
        if expected(status) { Ok(()) } else { Err(status) }
    }

    /// As [`await_status`](Self::await_status), after a person has decided.
    pub(crate) async fn await_end(&self, xid: &Xid) {
        self.ask_until(xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
    }

    async fn ask_until(&self, xid: &Xid, expected: impl Fn(GlobalStatus) -> bool) -> GlobalStatus {
        let reached = async {
            loop {
                let status = self.handfast.outcome(xid).await.unwrap();
                if expected(status) {
                    return status;
                }
                tokio::task::yield_now().await;
            }
        };
        let reached = tokio::time::timeout(Duration::from_secs(60), reached).await;
        reached.expect("a global ends in a minute")
    }

    /// What the tables of the library's database hold.
    pub(crate) async fn ours(&self, schema: &Schema, shown: Shown) -> Snapshot {
        let mut snapshot = Snapshot::new();
        for table in &schema.tables {
            let rows = DB::texts(&self.ours, &select::<DB>(table, shown)).await;
            snapshot.push(sorted(rows.unwrap()));
        }
        snapshot
    }

    /// What the tables of the other one hold.
    pub(crate) async fn plain(&self, schema: &Schema, shown: Shown) -> Snapshot {
        let mut local = self.plain.begin().await.unwrap();
        plain_in(&mut local, schema, shown).await
    }
}

/// Vouches for the triggers that write their own row.
fn trusting<DB: Twin>(resource: At<DB>) -> At<DB> {
    (0..TABLES_MAX).flat_map(trusted_triggers).fold(resource, At::trust_trigger)
}

/// What the tables of the other one hold within a transaction.
pub(crate) async fn plain_in<DB: Twin>(
    local: &mut Transaction<'static, DB>,
    schema: &Schema,
    shown: Shown,
) -> Snapshot {
    let mut snapshot = Snapshot::new();
    for table in &schema.tables {
        let rows = DB::texts_in(local, &select::<DB>(table, shown)).await;
        snapshot.push(sorted(rows.unwrap()));
    }
    snapshot
}

fn sorted(mut rows: Vec<TextRow>) -> Vec<TextRow> {
    rows.sort();
    rows
}

fn select<DB: Twin>(table: &Table, shown: Shown) -> String {
    let columns = table.columns.iter();
    let columns =
        columns.filter(|column| shown == Shown::All || column.role != Role::Clock).map(|column| {
            DB::shown(&crate::table::quoted(DB::SPEAKS, &column.name), &column.type_text)
        });
    let columns = columns.collect::<Vec<_>>().join(", ");
    format!("SELECT {columns} FROM {}", table.quoted(DB::SPEAKS))
}
