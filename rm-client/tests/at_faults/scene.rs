//! A coordinator in a process of its own, a database of accounts, and checks of the final state.

use handfast::{AtResource, AtTransaction, EndError, Global, GlobalStatus, Handfast, Xid};
use handfast_server::admin::model::Status;
use handfast_test_services::until;
use sqlx::Pool;
use sqlx::pool::PoolOptions;
use tokio::task::JoinHandle;

use crate::at::bank::Bank;
use crate::at::{TestDatabase, TextRow};
use crate::child::{ClientInput, PATIENCE};
use crate::client::Work;
use crate::coordinator::Coordinator;

/// An update, an insert and a delete.
pub(crate) const CHANGES: [&str; 3] = [
    "UPDATE account SET cents = cents - 10 WHERE id = 1",
    "INSERT INTO account (id, cents) VALUES (9, 5)",
    "DELETE FROM account WHERE id = 3",
];

/// A transaction that knows nothing of globals, open until it is ended.
pub(crate) struct Foreign<DB: TestDatabase> {
    connection: Pool<DB>,
}

impl<DB: TestDatabase> Foreign<DB> {
    pub(crate) async fn new(bank: &Bank<DB>, sql: &str) -> Self {
        let options = bank.pool.connect_options().as_ref().clone();
        let connection = PoolOptions::new().max_connections(1).connect_with(options);
        let connection = connection.await.unwrap();
        DB::raw(&connection, "BEGIN").await.unwrap();
        DB::raw(&connection, sql).await.unwrap();
        Self { connection }
    }

    pub(crate) async fn roll_back(self) {
        DB::raw(&self.connection, "ROLLBACK").await.unwrap();
    }
}

/// A coordinator and a database.
pub(crate) struct Scene<DB: TestDatabase> {
    pub(crate) coordinator: Coordinator,
    /// The TM of this process.
    pub(crate) handfast: Handfast,
    pub(crate) bank: Bank<DB>,
}

impl<DB: TestDatabase> Scene<DB> {
    /// Returns a scene in which a stopped process is soon passed over.
    pub(crate) async fn new() -> Self {
        Self::under(Coordinator::start_impatient().await).await
    }

    /// Returns a scene in which a late answer repeats no call.
    pub(crate) async fn patient() -> Self {
        Self::under(Coordinator::start().await).await
    }

    async fn under(coordinator: Coordinator) -> Self {
        let handfast = Handfast::connect(coordinator.endpoint()).application("parent");
        let handfast = handfast.await.unwrap();
        let bank = Bank::new(&handfast).await;
        Self { coordinator, handfast, bank }
    }

    pub(crate) async fn begin(&self) -> Global {
        self.handfast.transaction("test").begin().await.unwrap()
    }

    /// Makes this process an RM of the database.
    pub(crate) async fn resource(&self) -> AtResource<DB> {
        self.handfast.at(self.bank.pool.clone()).await.unwrap()
    }

    /// A child that changes accounts, as part of a global if one is given.
    pub(crate) fn client(&self, xid: Option<&Xid>, statements: &[&str]) -> ClientInput<Work> {
        ClientInput {
            database: DB::NAME_IN_TESTS.to_owned(),
            url: self.bank.url(),
            endpoint: self.coordinator.endpoint(),
            xid: xid.map(|xid| xid.as_str().to_owned()),
            timeout: PATIENCE,
            work: Work::Statements(statements.iter().map(|sql| (*sql).to_owned()).collect()),
        }
    }

    /// A child that reads what an account holds, globally committed.
    pub(crate) fn reader(&self, id: i64) -> ClientInput<Work> {
        let sql = format!("SELECT CAST(cents AS {}) FROM account WHERE id = {id}", DB::TEXT);
        ClientInput { work: Work::Read(sql), ..self.client(None, &[]) }
    }

    /// Returns a second process of the same service: an RM that finishes what the first one left.
    pub(crate) async fn rescuer(&self) -> Rescuer<DB> {
        let handfast = Handfast::connect(self.coordinator.endpoint()).application("rescuer");
        let handfast = handfast.await.unwrap();
        let resource = handfast.at(self.bank.pool.clone()).await.unwrap();
        Rescuer { handfast, resource }
    }

    /// Waits until the coordinator shows the global with this status.
    pub(crate) async fn until(&self, xid: &Xid, status: Status) {
        self.coordinator.until(xid.as_str(), |detail| detail.transaction.status == status).await;
    }

    /// Waits until a request waits for a global lock.
    pub(crate) async fn until_a_request_waits(&self) {
        until("a request waits", async || self.coordinator.status().await.waiters > 0).await;
    }

    /// Waits until the client sees the global as committed and finished.
    pub(crate) async fn until_committed(&self, xid: &Xid) {
        until("the global is committed", async || {
            self.handfast.outcome(xid).await.unwrap() == GlobalStatus::Committed
        })
        .await;
    }

    /// Waits until no global is unfinished.
    pub(crate) async fn until_finished(&self) {
        until("everything ends", async || {
            let status = self.coordinator.status().await;
            status.active + status.committing + status.rolling_back == 0
        })
        .await;
    }

    /// Checks that the rows are as given, and that globals have left nothing but guard rows, at
    /// least
    /// `guards_min`: a rollback that is requested twice may leave one more.
    pub(crate) async fn assert_clean(&self, accounts: &[TextRow], guards_min: i64) {
        assert_eq!(self.bank.accounts().await, accounts);
        let (logs, guards) = self.bank.undo_rows().await;
        assert_eq!(logs, 0, "undo logs");
        assert!(guards >= guards_min, "{guards} guard rows");
        self.assert_finished().await;
    }

    /// Checks that the coordinator has no unfinished global, no lock and no waiter.
    pub(crate) async fn assert_finished(&self) {
        let status = self.coordinator.status().await;
        let left = [
            ("active", status.active),
            ("committing", status.committing),
            ("rolling back", status.rolling_back),
            ("needs operator", status.needs_operator),
            ("locks", status.locks),
            ("waiters", status.waiters),
            ("pending branches", status.pending_branches),
        ];
        assert_eq!(left.map(|(what, _)| (what, 0)), left);
    }
}

/// An RM of its own connection.
pub(crate) struct Rescuer<DB: TestDatabase> {
    handfast: Handfast,
    resource: AtResource<DB>,
}

impl<DB: TestDatabase> Rescuer<DB> {
    pub(crate) fn resource(&self) -> &AtResource<DB> {
        &self.resource
    }

    pub(crate) async fn leave(self) {
        self.handfast.close().await;
    }
}

/// Rolls back in the background. The task ends when every branch is undone.
pub(crate) fn roll_back(global: Global) -> JoinHandle<Result<(), EndError>> {
    tokio::spawn(async move { global.rollback("test").await })
}

/// Runs statements as one branch of a global, in explicit form.
pub(crate) async fn branch<DB: TestDatabase>(
    resource: &AtResource<DB>,
    global: &Global,
    statements: &[&str],
) -> Result<(), sqlx::Error> {
    let work = async {
        let mut local = resource.begin().await?;
        run_all(&mut local, statements).await?;
        local.commit().await
    };
    Box::pin(global.scope(work)).await
}

/// Runs statements as one branch of the ambient global, in the form that waits with nothing held.
pub(crate) async fn alone<'e, DB: TestDatabase>(
    resource: &'e AtResource<DB>,
    statements: &'e [&'e str],
) -> Result<(), sqlx::Error> {
    resource.transaction(async |mut local| run_all(&mut local, statements).await).await
}

/// Runs statements in one local transaction.
pub(crate) async fn run_all<DB: TestDatabase>(
    local: &mut AtTransaction<'_, DB>,
    statements: &[&str],
) -> Result<(), sqlx::Error> {
    for sql in statements {
        DB::run(local, sql).await?;
    }
    Ok(())
}
