//! The roles of this test program's child processes, see [`run_role`]: a relay, a consumer, and a
//! branch that emits.

use handfast_test_services::run_role;
use serde::{Deserialize, Serialize};
use sqlx::{MySql, Postgres, Sqlite};

use crate::at::TestDatabase;
use crate::killed::play;

/// The arguments of a child.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ChildInput {
    /// The database product.
    pub(crate) database: String,
    pub(crate) url: String,
    /// The prefix of the broker's streams, for a relay or a consumer.
    pub(crate) prefix: String,
    /// The coordinator's endpoint and the XID, for a branch.
    pub(crate) global: Option<(String, String)>,
}

/// The entry of a child process. Without a role there is nothing to do.
#[test]
fn runs_its_role() {
    run_role(async |role| {
        let input: ChildInput = role.input();
        match input.database.as_str() {
            Postgres::NAME_IN_TESTS => play::<Postgres>(role.name(), input).await,
            MySql::NAME_IN_TESTS => play::<MySql>(role.name(), input).await,
            Sqlite::NAME_IN_TESTS => play::<Sqlite>(role.name(), input).await,
            other => unreachable!("no database is called {other}"),
        }
    });
}
