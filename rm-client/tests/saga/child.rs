//! Child processes of these tests: a participant of every saga, and a caller that dies.

use handfast::Handfast;
use handfast_test_services::{RoleProcess, report, run_role};
use serde::{Deserialize, Serialize};
use sqlx::{ConnectOptions, MySql, Pool, Postgres, Sqlite};

use crate::at::{Stage, TestDatabase};
use crate::scene::{Behaviour, Writes, five_steps, take_part};

const CALLER: &str = "caller";

/// The arguments of a child.
#[derive(Debug, Serialize, Deserialize)]
struct Input {
    endpoint: String,
    /// The URL of a participant's database; empty for a caller.
    database: String,
}

/// The entry of a child process. Without a role there is nothing to do.
#[test]
fn runs_its_role() {
    run_role(async |role| {
        let Input { endpoint, database } = role.input();
        let handfast = Handfast::connect(endpoint).application(role.name()).await.unwrap();
        match role.name() {
            CALLER => call_and_die(&handfast).await,
            Postgres::NAME_IN_TESTS => take_part(&handfast, &pool::<Postgres>(&database).await),
            MySql::NAME_IN_TESTS => take_part(&handfast, &pool::<MySql>(&database).await),
            Sqlite::NAME_IN_TESTS => take_part(&handfast, &pool::<Sqlite>(&database).await),
            other => unreachable!("no role is called {other}"),
        }
        report("ready");
        std::future::pending::<()>().await;
    });
}

async fn pool<DB: Writes>(url: &str) -> Pool<DB> {
    Pool::<DB>::connect(url).await.unwrap()
}

/// Dies when the answer arrives that the saga has started.
async fn call_and_die(handfast: &Handfast) {
    handfast.start_saga("orphan", five_steps("", Behaviour::Good)).await.unwrap();
    std::process::abort();
}

/// Starts a participant that dies when it passes a crash point, `name:pass`, and waits until it is
/// registered.
pub(crate) async fn participant<DB: Writes>(stage: &Stage<DB>, crash_point: &str) -> RoleProcess {
    let database = stage.pool.connect_options().to_url_lossy().to_string();
    let input = Input { endpoint: stage.tc.endpoint(), database };
    let variables = [("HANDFAST_CRASH_POINT", crash_point)];
    let mut child = RoleProcess::start(DB::NAME_IN_TESTS, &input, &variables);
    assert_eq!(child.next_report::<String>().await, "ready");
    child
}

/// Starts a caller, which dies.
pub(crate) fn caller(endpoint: String) -> RoleProcess {
    RoleProcess::start(CALLER, &Input { endpoint, database: String::new() }, &[])
}
