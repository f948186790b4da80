//! A coordinator in a process of its own, a database of accounts, and checks of the final state.

use handfast::{Global, GlobalStatus, Handfast, XaError, XaResource, XaTransaction, Xid};
use handfast_test_services::{ASK_EVERY, until};
use sqlx::Pool;

use crate::at::bank::Bank;
use crate::child::{ClientInput, PATIENCE};
use crate::client::Work;
use crate::coordinator::Coordinator;
use crate::database::XaTestDatabase;

/// Takes ten from an account.
pub(crate) const DEBIT: &str = "UPDATE account SET cents = cents - 10 WHERE id = 1";
/// Takes ten from another account.
pub(crate) const OTHER_DEBIT: &str = "UPDATE account SET cents = cents - 10 WHERE id = 2";

/// A coordinator and a database.
pub(crate) struct Scene<DB: XaTestDatabase> {
    pub(crate) coordinator: Coordinator,
    pub(crate) handfast: Handfast,
    pub(crate) bank: Bank<DB>,
    /// The node id, unique to this scene: the servers are shared, and prepared branches belong to
    /// servers.
    pub(crate) node: String,
}

impl<DB: XaTestDatabase> Scene<DB> {
    pub(crate) async fn new() -> Self {
        let (pool, _) = DB::create().await;
        Self::on(pool).await
    }

    /// Returns a scene on an empty database.
    pub(crate) async fn on(pool: Pool<DB>) -> Self {
        Self::under(Coordinator::start_impatient().await, pool).await
    }

    /// Returns a scene in which a late answer repeats no call.
    pub(crate) async fn patient() -> Self {
        let (pool, _) = DB::create().await;
        Self::under(Coordinator::start().await, pool).await
    }

    async fn under(coordinator: Coordinator, pool: Pool<DB>) -> Self {
        let handfast = Handfast::connect(coordinator.endpoint()).application("parent");
        let handfast = handfast.await.unwrap();
        let bank = Bank::on(&handfast, pool).await;
        let node = format!("n{}", &uuid::Uuid::new_v4().simple().to_string()[..16]);
        Self { coordinator, handfast, bank, node }
    }

    /// Makes this process an RM of the database.
    pub(crate) async fn resource(&self) -> XaResource<DB> {
        self.handfast.xa(self.bank.pool.clone()).node(&self.node).await.unwrap()
    }

    /// Returns a second process of the same service: an RM that finishes what the first one left.
    pub(crate) async fn rescuer(&self) -> Rescuer<DB> {
        let handfast = Handfast::connect(self.coordinator.endpoint()).application("rescuer");
        let handfast = handfast.await.unwrap();
        let resource = handfast.xa(self.bank.pool.clone()).node(&self.node).await.unwrap();
        Rescuer { handfast, resource }
    }

    pub(crate) async fn begin(&self) -> Global {
        self.handfast.transaction("test").begin().await.unwrap()
    }

    /// Returns a child that runs a branch of a global, and begins its own if none is given.
    pub(crate) fn client(&self, xid: Option<&Xid>, sql: &str) -> ClientInput<Work> {
        self.client_of(&self.bank, xid, sql)
    }

    /// Acts as [`Self::client`] on another database.
    pub(crate) fn client_of<Other: XaTestDatabase>(
        &self,
        bank: &Bank<Other>,
        xid: Option<&Xid>,
        sql: &str,
    ) -> ClientInput<Work> {
        ClientInput {
            database: Other::NAME_IN_TESTS.to_owned(),
            url: bank.url(),
            endpoint: self.coordinator.endpoint(),
            xid: xid.map(|xid| xid.as_str().to_owned()),
            timeout: PATIENCE,
            work: Work { node: self.node.clone(), sql: sql.to_owned() },
        }
    }

    /// Returns the names of this scene's prepared branches.
    pub(crate) async fn prepared(&self) -> Vec<String> {
        DB::listed(&self.bank.pool, &self.node).await
    }

    /// Waits until this many branches are prepared.
    pub(crate) async fn until_prepared(&self, count: usize) {
        until("so many are prepared", async || self.prepared().await.len() == count).await;
    }

    /// Waits until the global is committed and finished.
    pub(crate) async fn until_committed(&self, xid: &Xid) {
        self.until(xid, |status| status == GlobalStatus::Committed).await;
    }

    /// Waits until the global is rolled back and finished.
    pub(crate) async fn until_rolled_back(&self, xid: &Xid) {
        self.until(xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
    }

    async fn until(&self, xid: &Xid, expected: impl Fn(GlobalStatus) -> bool) {
        let mut last = GlobalStatus::Unknown;
        let reached = async {
            while !expected(last) {
                last = self.handfast.outcome(xid).await.unwrap();
                tokio::time::sleep(ASK_EVERY).await;
            }
        };
        if tokio::time::timeout(PATIENCE, reached).await.is_err() {
            panic!("the global stays {last}: {:?}", self.coordinator.show(xid.as_str()).await);
        }
    }

    /// Checks that no branch is prepared, no global is unfinished, and the accounts hold `cents`.
    pub(crate) async fn assert_clean(&self, cents: [i64; 2]) {
        assert_eq!(self.prepared().await, Vec::<String>::new());
        assert_eq!([self.bank.cents(1).await, self.bank.cents(2).await], cents);
        let status = self.coordinator.status().await;
        let owed = [status.active, status.committing, status.rolling_back, status.needs_operator];
        assert_eq!(owed, [0; 4]);
    }
}

/// An RM of its own connection.
pub(crate) struct Rescuer<DB: XaTestDatabase> {
    handfast: Handfast,
    pub(crate) resource: XaResource<DB>,
}

impl<DB: XaTestDatabase> Rescuer<DB> {
    pub(crate) async fn leave(self) {
        self.handfast.close().await;
    }
}

/// Runs SQL as one branch of a global.
pub(crate) async fn branch<DB: XaTestDatabase>(
    resource: &XaResource<DB>,
    global: &Global,
    sql: &str,
) -> Result<(), sqlx::Error> {
    let work = async {
        let mut local: XaTransaction<'static, DB> = resource.begin().await?;
        DB::run_xa(&mut local, sql).await?;
        local.commit().await
    };
    Box::pin(global.scope(work)).await
}

/// The stable code of a failure, or the error itself.
pub(crate) fn code(error: &sqlx::Error) -> String {
    XaError::of(error).map_or_else(|| format!("{error:?}"), |ours| ours.code().to_owned())
}
