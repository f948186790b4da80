//! A client in a child process: one branch of a global, and then an RM that waits for phase two.

use std::time::Duration;

use handfast::XaTransaction;
use serde::{Deserialize, Serialize};
use sqlx::pool::PoolOptions;
use sqlx::{MySql, Postgres};

use crate::at::TestDatabase;
use crate::child::ClientInput;
use crate::database::XaTestDatabase;
use crate::scene::code;

/// The work of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    /// The node id that its branches carry.
    pub(crate) node: String,
    /// The statement of the branch; without one there is no branch.
    pub(crate) sql: String,
}

/// In the child: does the work and reports the end of phase one.
pub(crate) async fn play(input: ClientInput<Work>) {
    match input.database.as_str() {
        Postgres::NAME_IN_TESTS => Box::pin(play_on::<Postgres>(input)).await,
        MySql::NAME_IN_TESTS => Box::pin(play_on::<MySql>(input)).await,
        other => unreachable!("no database is called {other}"),
    }
}

async fn play_on<DB: XaTestDatabase>(input: ClientInput<Work>) {
    let handfast = input.connect().await;
    let pool = PoolOptions::<DB>::new().max_connections(5).connect(&input.url).await.unwrap();
    // The session is held for longer than any test runs: only the death of the process ends it.
    let resource = handfast.xa(pool).node(&input.work.node).hold_limit(Duration::from_secs(3_600));
    let resource = resource.await.unwrap();
    let branch = async {
        if input.work.sql.is_empty() {
            return Ok(());
        }
        let mut local: XaTransaction<'static, DB> = resource.begin().await?;
        DB::run_xa(&mut local, &input.work.sql).await?;
        local.commit().await
    };
    let branch = async { branch.await.map_err(|error| code(&error)) };
    input.run(&handfast, branch).await;
}
