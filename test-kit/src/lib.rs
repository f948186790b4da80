//! Tests for services that use [Handfast](handfast).
//!
//! A test starts a [`TestKit`]: the real coordinator in the test's own process, with its records in
//! memory, reached by the real client over the real protocol. Then it
//!
//! | does | by |
//! | --- | --- |
//! | lets time pass, for coordinator and client alike | [`TestKit::advance`] |
//! | has something go wrong, by name | [`TestKit::inject`], [`Fault`], [`Death`] |
//! | says how a transaction must end | [`TestKit::assert_committed`] and its kin |
//! | says that nothing is left of it | [`TestKit::assert_nothing_left`] |
//! | plays a saga with everything that can happen to it | [`SagaRunner`] |
//! | uses SQLite, or a database of its own | [`TestKit::sqlite`], [`TestDatabase`] |
//!
//! ```
//! use handfast_test::{Fault, TestKit};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let kit = TestKit::start().await?;
//! let pool = kit.sqlite("CREATE TABLE orders (id INTEGER PRIMARY KEY)").await?;
//! let orders = kit.handfast().at(pool.clone()).await?;
//!
//! kit.inject(Fault::refused_registration(1));
//! let order = kit.handfast().transaction("place-order").run(async |_tx| {
//!     sqlx::query("INSERT INTO orders VALUES (1)").execute(&orders).await
//! });
//! assert!(order.await.is_err());
//! kit.assert_nothing_left(&pool).await;
//! kit.assert_faults_struck();
//! # Ok(())
//! # }
//! ```
//!
//! # Stable
//!
//! [`TestKit`] with its assertions, the names of [`Fault`] and [`Death`], and [`SagaRunner`] are
//! stable in the sense of semantic versions. The texts of messages are for readers and may change,
//! and so may the number of plays of a saga.
#![warn(missing_docs)]

mod assertions;
mod clock;
mod coordinator;
#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres", feature = "sqlite")),
    expect(dead_code, unused_imports, reason = "without a database there is no look into one")
)]
mod database;
mod error;
#[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "only SQLite fails COMMITs"))]
mod fault;
#[cfg_attr(not(feature = "sqlite"), expect(dead_code, reason = "only SQLite fails COMMITs"))]
mod faults;
mod gate;
mod kit;
mod saga;
#[cfg(feature = "sqlite")]
mod sqlite;
mod traffic;
mod view;
mod wire;

pub use database::TestDatabase;
pub use error::KitError;
pub use fault::Fault;
pub use gate::Death;
pub use kit::{InjectedFault, TestKit};
pub use saga::{PlayFailure, SagaEnd, SagaRunError, SagaRunner, SagaRuns};

/// The page for users: its fragments are compiled as they stand.
#[cfg(all(doctest, feature = "sqlite"))]
mod pages {
    #[doc = include_str!("../../docs/testing-your-service.md")]
    struct TestingYourService;

    #[doc = include_str!("../../test-kit/README.md")]
    struct CrateReadme;
}
