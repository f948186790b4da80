//! A coordinator, a database behind the library, and a twin that the library does not use.

use std::time::Duration;

use handfast::{At, AtResource, Global, GlobalStatus, Handfast, Xid};
use handfast_server::dispatch;
use handfast_server::embedded::{RunningServer, Server};
use handfast_test_services::until_some;
use sqlx::{Pool, Transaction};

use crate::database::{TextRow, Twin, Twins};
use crate::schema::{Schema, TABLES_MAX, trusted_triggers};
use crate::table::{Role, Table};
use crate::witness::Witness;

/// The databases of a run.
pub(crate) struct Scene<DB: Twin> {
    pub(crate) server: RunningServer,
    pub(crate) handfast: Handfast,
    pub(crate) resource: AtResource<DB>,
    /// The same database, for a global that does not wait.
    pub(crate) rival: AtResource<DB>,
    pub(crate) ours: Pool<DB>,
    pub(crate) plain: Pool<DB>,
    /// The reports of the library's database about its own changes.
    pub(crate) witness: Witness,
    _directory: Option<tempfile::TempDir>,
}

/// Rows of every table of a schema, sorted.
pub(crate) type Snapshot = Vec<Vec<TextRow>>;

/// The columns that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    All,
    /// The columns in which twins do not differ.
    Alike,
}

impl<DB: Twin> Scene<DB> {
    /// Returns a scene. `compound_statements` chooses whether MariaDB gets statements together.
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
        // Phase two calls the resource that was registered last: it has to know which branches
        // have ended.
        let rival = trusting(handfast.at(ours.clone()).lock_timeout(Duration::ZERO));
        let rival = rival.await.unwrap();
        let resource = handfast.at(ours.clone()).compound_statements(compound_statements);
        let resource = trusting(resource).await.unwrap();
        Self { server, handfast, resource, rival, ours, plain, witness, _directory: directory }
    }

    pub(crate) async fn begin(&self) -> Global {
        self.handfast.transaction("differential").begin().await.unwrap()
    }

    /// Polls until the global has the expected status. Returns the status as an error if the global
    /// needs an operator.
    pub(crate) async fn await_status(
        &self,
        xid: &Xid,
        expected: impl Fn(GlobalStatus) -> bool,
    ) -> Result<(), GlobalStatus> {
        let stuck = |status| matches!(status, GlobalStatus::NeedsOperator(_));
        let status = self.ask_until(xid, |status| expected(status) || stuck(status)).await;
        if expected(status) { Ok(()) } else { Err(status) }
    }

    /// As [`await_status`](Self::await_status), after an operator has decided.
    pub(crate) async fn await_end(&self, xid: &Xid) {
        self.ask_until(xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
    }

    async fn ask_until(&self, xid: &Xid, expected: impl Fn(GlobalStatus) -> bool) -> GlobalStatus {
        until_some("the global has the status", async || {
            let status = self.handfast.outcome(xid).await.unwrap();
            expected(status).then_some(status)
        })
        .await
    }

    /// Returns the rows of the library's database.
    pub(crate) async fn ours(&self, schema: &Schema, shown: Shown) -> Snapshot {
        let mut snapshot = Snapshot::new();
        for table in &schema.tables {
            let rows = DB::texts(&self.ours, &select::<DB>(table, shown)).await;
            snapshot.push(sorted(rows.unwrap()));
        }
        snapshot
    }

    /// Returns the rows of the twin.
    pub(crate) async fn plain(&self, schema: &Schema, shown: Shown) -> Snapshot {
        let mut local = self.plain.begin().await.unwrap();
        plain_in(&mut local, schema, shown).await
    }
}

/// Vouches for the triggers that write their own row.
fn trusting<DB: Twin>(resource: At<DB>) -> At<DB> {
    (0..TABLES_MAX).flat_map(trusted_triggers).fold(resource, At::trust_trigger)
}

/// Returns the rows of the twin within a transaction.
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
