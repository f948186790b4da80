//! A client in a child process: one branch of a global, and then an RM that waits for phase two.

use std::time::Duration;

use futures::future::join_all;
use handfast::{AtResource, Counter, Global, Handfast};
use serde::{Deserialize, Serialize};
use sqlx::pool::PoolOptions;
use sqlx::{MySql, Postgres, Sqlite};

use crate::at::{TestDatabase, code};
use crate::child::{ClientInput, report};
use crate::scene::alone;

/// The work of a client.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Statements, which are one branch.
    Statements(Vec<String>),
    /// The same, and the branch is the last one of its global.
    Last(Vec<String>),
    /// The same behind another branch, of the first statement.
    LastOfTwo(Vec<String>),
    /// A statement whose argument names its row, as the last branch. Another global has run it
    /// before.
    NamedRow(String, i64),
    /// The same for each of so many globals, at the same time: the first ones of the accounts are
    /// their rows.
    NamedRows(String, i64),
    /// Statements, where the amounts of the accounts are counters.
    Counted(Vec<String>),
    /// So many globals of one statement each, at the same time, where the amounts of the accounts
    /// are counters.
    Crowd(String, usize),
    /// A globally committed read in a global of its own.
    Read(String),
}

/// In the child: does the work, and reports its end or the value read.
pub(crate) async fn play(input: ClientInput<Work>) {
    match input.database.as_str() {
        Postgres::NAME_IN_TESTS => Box::pin(play_on::<Postgres>(input)).await,
        MySql::NAME_IN_TESTS => Box::pin(play_on::<MySql>(input)).await,
        Sqlite::NAME_IN_TESTS => Box::pin(play_on::<Sqlite>(input)).await,
        other => unreachable!("no database is called {other}"),
    }
}

async fn play_on<DB: TestDatabase>(input: ClientInput<Work>) {
    let handfast = input.connect().await;
    let pool = PoolOptions::<DB>::new().max_connections(5).connect(&input.url).await.unwrap();
    let mut at = handfast.at(pool);
    if matches!(input.work, Work::Counted(_) | Work::Crowd(..)) {
        at = at.counter("account", "cents", Counter::at_least(0));
    }
    let resource = at.await.unwrap();
    match &input.work {
        Work::Read(sql) => {
            report(&read(&handfast, &resource, sql).await);
            std::future::pending().await
        }
        Work::Crowd(sql, count) => crowd(&handfast, &resource, sql, *count, input.timeout).await,
        Work::NamedRow(sql, argument) => {
            // Then the plan is known.
            let (arguments, last) = ([*argument], resource.last());
            let known = async |_tx| DB::run_alone_with(&resource, sql, &arguments).await;
            handfast.transaction("child").run(known).await.unwrap();
            let branch = DB::run_alone_with(&last, sql, &arguments);
            let branch = async { branch.await.map(drop).map_err(|error| code(&error)) };
            input.run(&handfast, branch).await;
        }
        Work::NamedRows(sql, count) => named_rows(&handfast, &resource, sql, *count, &input).await,
        Work::LastOfTwo(statements) => {
            let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
            let (first, rest) = statements.split_at(1);
            let last = resource.last();
            let branches = async {
                let done = async {
                    alone(&resource, first).await?;
                    alone(&last, rest).await
                };
                done.await.map_err(|error| code(&error))
            };
            input.run(&handfast, branches).await;
        }
        Work::Statements(statements) | Work::Last(statements) | Work::Counted(statements) => {
            let statements: Vec<&str> = statements.iter().map(String::as_str).collect();
            let is_last = matches!(input.work, Work::Last(_));
            let resource = if is_last { resource.last() } else { resource };
            let branch =
                async { alone(&resource, &statements).await.map_err(|error| code(&error)) };
            input.run(&handfast, branch).await;
        }
    }
}

/// Runs a statement in a global that commits, then in many that stay undecided. Reports that the
/// first one is done, and then waits for its death.
async fn crowd<DB: TestDatabase>(
    handfast: &Handfast,
    resource: &AtResource<DB>,
    sql: &str,
    count: usize,
    timeout: Duration,
) {
    let begin = async || handfast.transaction("child").timeout(timeout).begin().await.unwrap();
    let first = begin().await;
    first.scope(DB::run_alone(resource, sql)).await.unwrap();
    first.commit().await.unwrap();
    report("done");
    let member = async |_| {
        let global = begin().await;
        let taken = global.scope(DB::run_alone(resource, sql)).await;
        // Dropping the global would roll it back.
        std::mem::forget(global);
        taken.unwrap();
    };
    join_all((0..count).map(member)).await;
    std::future::pending().await
}

/// Runs a statement as the last branch of each of several globals. Reports their XIDs, then how
/// they have ended.
async fn named_rows<DB: TestDatabase>(
    handfast: &Handfast,
    resource: &AtResource<DB>,
    sql: &str,
    count: i64,
    input: &ClientInput<Work>,
) {
    let begin = async || {
        let global = handfast.transaction("child").timeout(input.timeout).begin();
        global.await.unwrap()
    };
    // Then the plan is known.
    let first = begin().await;
    first.scope(DB::run_alone_with(resource, sql, &[1])).await.unwrap();
    first.rollback("nothing to keep").await.unwrap();
    let globals = join_all((0..count).map(|_| begin())).await;
    let xids = globals.iter().map(|global| global.xid().to_string());
    report(&xids.collect::<Vec<_>>());
    let last = resource.last();
    let branch = async |(global, id): (Global, i64)| {
        let taken = global.scope(DB::run_alone_with(&last, sql, &[id])).await;
        // Dropping the global would roll it back.
        std::mem::forget(global);
        taken.map_or_else(|error| code(&error), |_| "done".to_owned())
    };
    // On a busy machine the database may have kept them apart.
    report(&join_all(globals.into_iter().zip(1..).map(branch)).await);
    std::future::pending().await
}

/// Returns the first field of a globally committed read.
async fn read<DB: TestDatabase>(
    handfast: &Handfast,
    resource: &AtResource<DB>,
    sql: &str,
) -> String {
    let global = handfast.transaction("child").read_committed().begin().await.unwrap();
    let read = resource.transaction(async |mut local| DB::read(&mut local, sql).await);
    let rows = Box::pin(global.scope(read)).await.unwrap();
    global.commit().await.unwrap();
    rows[0][0].clone().unwrap()
}
