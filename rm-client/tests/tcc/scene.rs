//! A coordinator in a process of its own, a database of accounts, and checks of the final state.

use std::sync::Arc;

use handfast::{EndError, Global, GlobalStatus, Handfast, TccError, TccResource, Xid};
use handfast_server::admin::model::{Status, TransactionDetail};
use handfast_test_services::ASK_EVERY;
use sqlx::{ConnectOptions, Pool};
use tokio::task::JoinHandle;

use crate::action::{Amount, Conduct, DEBIT, Debit, DebitError, LocalDatabase};
use crate::at::TextRow;
use crate::child::{ClientInput, PATIENCE};
use crate::client::Account;
use crate::coordinator::Coordinator;

const TABLES: &[&str] = &[
    "CREATE TABLE account \
     (id BIGINT NOT NULL PRIMARY KEY, cents BIGINT NOT NULL, held BIGINT NOT NULL)",
    "INSERT INTO account VALUES (1, 1000, 0), (2, 1000, 0), (3, 1000, 0)",
    "CREATE TABLE trace (n INT, xid VARCHAR(64) NOT NULL, operation VARCHAR(16) NOT NULL)",
    "CREATE TABLE note (id BIGINT NOT NULL PRIMARY KEY, body VARCHAR(64))",
    "INSERT INTO note VALUES (1, 'as it was')",
];

/// The states of a fence as its table stores them.
pub(crate) const CONFIRMED: &str = "2";
pub(crate) const CANCELLED: &str = "3";
pub(crate) const BARRED: &str = "4";

/// The free and the held amount of an account before any debit, after a try, and after a confirm.
pub(crate) const UNTOUCHED: [i64; 2] = [1_000, 0];
pub(crate) const TRIED: [i64; 2] = [990, 10];
pub(crate) const DEBITED: [i64; 2] = [990, 0];

/// A coordinator and a database.
pub(crate) struct Scene<DB: LocalDatabase> {
    pub(crate) coordinator: Coordinator,
    pub(crate) handfast: Handfast,
    pub(crate) pool: Pool<DB>,
    pub(crate) conduct: Arc<Conduct>,
    _directory: Option<tempfile::TempDir>,
}

impl<DB: LocalDatabase> Scene<DB> {
    pub(crate) async fn new() -> Self {
        Self::under(Coordinator::start().await).await
    }

    /// Returns a scene in which a stopped process is soon passed over.
    pub(crate) async fn impatient() -> Self {
        Self::under(Coordinator::start_impatient().await).await
    }

    async fn under(coordinator: Coordinator) -> Self {
        let handfast = Handfast::connect(coordinator.endpoint()).application("parent");
        let handfast = handfast.await.unwrap();
        let (pool, _directory) = DB::create().await;
        handfast.migrate(&pool).await.unwrap();
        for sql in TABLES {
            DB::raw(&pool, sql).await.unwrap();
        }
        Self { coordinator, handfast, pool, conduct: Arc::default(), _directory }
    }

    /// Registers the debit in this process.
    pub(crate) async fn resource(&self) -> TccResource<Debit<DB>> {
        let debit = Debit::new(&self.conduct);
        self.handfast.tcc(DEBIT, self.pool.clone(), debit).await.unwrap()
    }

    /// Returns a second process of the same service, which finishes what the first one left.
    pub(crate) async fn rescuer(&self) -> Rescuer<DB> {
        let handfast = Handfast::connect(self.coordinator.endpoint()).application("rescuer");
        let handfast = handfast.await.unwrap();
        let conduct = Arc::<Conduct>::default();
        let debit = Debit::new(&conduct);
        let resource = handfast.tcc(DEBIT, self.pool.clone(), debit).await.unwrap();
        Rescuer { handfast, resource, conduct }
    }

    pub(crate) async fn begin(&self) -> Global {
        self.handfast.transaction("test").begin().await.unwrap()
    }

    /// Returns a child that debits an account, in a global of its own if none is given.
    pub(crate) fn client(&self, xid: Option<&Xid>, account: Account) -> ClientInput<Account> {
        ClientInput {
            database: DB::NAME_IN_TESTS.to_owned(),
            url: self.pool.connect_options().to_url_lossy().to_string(),
            endpoint: self.coordinator.endpoint(),
            xid: xid.map(|xid| xid.as_str().to_owned()),
            timeout: PATIENCE,
            work: account,
        }
    }

    /// Returns the free and the held amount of an account.
    pub(crate) async fn account(&self, id: i64) -> [i64; 2] {
        let text = DB::TEXT;
        let cells = format!("CAST(cents AS {text}), CAST(held AS {text})");
        let row =
            self.rows(&format!("SELECT {cells} FROM account WHERE id = {id}")).await.remove(0);
        [0, 1].map(|cell: usize| row[cell].as_deref().unwrap().parse().unwrap())
    }

    /// Returns the operations of a global that took effect, sorted.
    pub(crate) async fn traces(&self, xid: &Xid) -> Vec<String> {
        let sql = format!("SELECT operation FROM trace WHERE xid = '{xid}' ORDER BY operation");
        self.texts(&sql).await
    }

    /// Returns the states of the fences of a global, sorted.
    pub(crate) async fn fences(&self, xid: &Xid) -> Vec<String> {
        let status = format!("CAST(status AS {})", DB::TEXT);
        let sql = format!("SELECT {status} FROM branch_fence WHERE xid = '{xid}' ORDER BY 1");
        self.texts(&sql).await
    }

    /// Returns the text in the row of AT mode.
    pub(crate) async fn note(&self) -> String {
        self.texts("SELECT body FROM note WHERE id = 1").await.remove(0)
    }

    /// Returns the only value of a query, as a number.
    pub(crate) async fn number(&self, sql: &str) -> i64 {
        let sql = format!("SELECT CAST(({sql}) AS {})", DB::TEXT);
        self.texts(&sql).await[0].parse().unwrap()
    }

    async fn texts(&self, sql: &str) -> Vec<String> {
        self.rows(sql).await.into_iter().map(|mut row| row.remove(0).unwrap()).collect()
    }

    async fn rows(&self, sql: &str) -> Vec<TextRow> {
        DB::raw_rows(&self.pool, sql).await.unwrap()
    }

    /// Waits until the coordinator shows the global with this status.
    pub(crate) async fn until(&self, xid: &Xid, status: Status) -> TransactionDetail {
        self.coordinator.until(xid.as_str(), |detail| detail.transaction.status == status).await
    }

    /// Waits until this process sees the global as committed and finished.
    pub(crate) async fn until_committed(&self, xid: &Xid) {
        let committed = async {
            while self.handfast.outcome(xid).await.unwrap() != GlobalStatus::Committed {
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        if tokio::time::timeout(PATIENCE, committed).await.is_err() {
            panic!("not committed: {:?}", self.coordinator.show(xid.as_str()).await);
        }
    }

    /// Checks that the coordinator has no unfinished global and none that needs an operator.
    pub(crate) async fn assert_finished(&self) {
        let status = self.coordinator.status().await;
        let owed = [status.active, status.committing, status.rolling_back, status.needs_operator];
        assert_eq!((owed, status.pending_branches), ([0; 4], 0));
    }
}

/// A process with a connection of its own.
pub(crate) struct Rescuer<DB: LocalDatabase> {
    handfast: Handfast,
    pub(crate) resource: TccResource<Debit<DB>>,
    pub(crate) conduct: Arc<Conduct>,
}

impl<DB: LocalDatabase> Rescuer<DB> {
    pub(crate) async fn leave(self) {
        self.handfast.close().await;
    }
}

/// Tries a debit as a branch of a global.
pub(crate) async fn debit<DB: LocalDatabase>(
    resource: &TccResource<Debit<DB>>,
    global: &Global,
    amount: &Amount,
) -> Result<(), TccError<DebitError>> {
    Box::pin(global.scope(resource.try_(amount))).await
}

/// Rolls back in the background. The task ends when every branch is undone.
pub(crate) fn roll_back(global: Global) -> JoinHandle<Result<(), EndError>> {
    tokio::spawn(async move { global.rollback("test").await })
}
