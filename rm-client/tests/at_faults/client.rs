//! A client in a process of its own: it runs one branch of a global, and then waits for phase two
//! as an RM.

use std::time::Duration;

use handfast::{AtResource, Handfast, Xid};
use serde::{Deserialize, Serialize};
use sqlx::pool::PoolOptions;
use sqlx::{MySql, Postgres, Sqlite};

use crate::at::{TestDatabase, code};
use crate::child::{Child, TIMED_OUT, tell};
use crate::scene::alone;

/// The parameters of a client in a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientPart {
    /// The database product.
    pub(crate) database: String,
    /// The URL of the database.
    pub(crate) url: String,
    /// The endpoint of the coordinator.
    pub(crate) endpoint: String,
    /// The global to join. Without one, the client begins its own.
    pub(crate) xid: Option<String>,
    /// The timeout of a global of its own.
    pub(crate) timeout: Duration,
    /// The statements of the branch.
    pub(crate) statements: Vec<String>,
    /// A globally committed read to run in a global of its own, instead of a branch.
    pub(crate) reads: Option<String>,
}

impl ClientPart {
    /// Sets the timeout of a global of its own.
    pub(crate) fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Starts the child, which begins a global of its own, and waits until it dies at a crash
    /// point. Returns the XID, or `None` if the global timed out first.
    pub(crate) async fn crash_with_its_global_at(&self, point: &str) -> Option<String> {
        let mut child = self.crash_at(point);
        let xid = child.told().await;
        let told = child.crashed_or_told().await;
        assert!(told.is_none() || told.as_deref() == Some(TIMED_OUT), "{point}: {told:?}");
        told.is_none().then_some(xid)
    }

    /// Starts the child, which dies at a crash point.
    pub(crate) fn crash_at(&self, point: &str) -> Child {
        Child::start("client", self, &[("HANDFAST_CRASH_POINT", point)])
    }

    /// Starts the child, which is suspended at a crash point.
    pub(crate) fn stop_at(&self, point: &str) -> Child {
        Child::start("client", self, &[("HANDFAST_STOP_POINT", point)])
    }
}

/// Runs in the child: reports the XID of its own global, if any, and the outcome of phase one, or
/// the result of its read.
pub(crate) async fn play(part: ClientPart) {
    match part.database.as_str() {
        Postgres::NAME_IN_TESTS => play_on::<Postgres>(part).await,
        MySql::NAME_IN_TESTS => play_on::<MySql>(part).await,
        Sqlite::NAME_IN_TESTS => play_on::<Sqlite>(part).await,
        other => unreachable!("no database is called {other}"),
    }
}

async fn play_on<DB: TestDatabase>(part: ClientPart) {
    let handfast = Handfast::connect(&part.endpoint).application("child").await.unwrap();
    let pool = PoolOptions::<DB>::new().max_connections(5).connect(&part.url).await.unwrap();
    let resource = handfast.at(pool).await.unwrap();
    if let Some(sql) = &part.reads {
        tell(&read(&handfast, &resource, sql).await);
        return std::future::pending().await;
    }
    let statements: Vec<&str> = part.statements.iter().map(String::as_str).collect();
    let work = alone(&resource, &statements);
    let result = if let Some(xid) = &part.xid {
        let xid: Xid = xid.parse().unwrap();
        Box::pin(xid.scope(work)).await
    } else {
        let global = handfast.transaction("child").timeout(part.timeout);
        let global = global.begin().await.unwrap();
        tell(global.xid().as_str());
        let result = Box::pin(global.scope(work)).await;
        std::mem::forget(global);
        result
    };
    match result {
        Ok(()) => tell("done"),
        Err(error) => tell(&code(&error)),
    }
    std::future::pending::<()>().await;
}

/// Returns the first field of a globally committed read.
async fn read<DB: TestDatabase>(
    handfast: &Handfast,
    resource: &AtResource<DB>,
    sql: &str,
) -> String {
    let global = handfast.transaction("child").read_committed().begin().await.unwrap();
    let read = resource.transaction(|local| Box::pin(DB::read(local, sql)));
    let rows = Box::pin(global.scope(read)).await.unwrap();
    global.commit().await.unwrap();
    rows[0][0].clone().unwrap()
}
