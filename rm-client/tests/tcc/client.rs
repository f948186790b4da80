//! A client in a child process: one debit of a global, and then a process that waits for phase two.

use std::sync::Arc;

use sqlx::pool::PoolOptions;
use sqlx::{MySql, Postgres, Sqlite};

use crate::action::{Conduct, DEBIT, Debit, LocalDatabase, ten_from};
use crate::at::TestDatabase;
use crate::child::ClientInput;

/// The account that a client debits.
pub(crate) type Account = i64;

/// In the child: debits the account and reports the end of phase one.
pub(crate) async fn play(input: ClientInput<Account>) {
    match input.database.as_str() {
        Postgres::NAME_IN_TESTS => play_on::<Postgres>(input).await,
        MySql::NAME_IN_TESTS => play_on::<MySql>(input).await,
        Sqlite::NAME_IN_TESTS => play_on::<Sqlite>(input).await,
        other => unreachable!("no database is called {other}"),
    }
}

async fn play_on<DB: LocalDatabase>(input: ClientInput<Account>) {
    let handfast = input.connect().await;
    let pool = PoolOptions::<DB>::new().max_connections(5).connect(&input.url).await.unwrap();
    let debit = Debit::new(&Arc::<Conduct>::default());
    let resource = handfast.tcc(DEBIT, pool, debit).await.unwrap();
    let amount = ten_from(input.work);
    let branch = async { resource.try_(&amount).await.map_err(|error| error.code().to_owned()) };
    input.run(&handfast, branch).await;
}
