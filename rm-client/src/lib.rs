//! Distributed transactions for services: begin, commit and roll back across databases with
//! ordinary SQL.
//!
//! A *global* transaction spans services and their databases. One process begins it; whatever the
//! work calls, in this process or over HTTP and gRPC, takes part in it; at the end all of it has
//! happened or none. The coordinator, `handfast serve`, keeps the decision.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use handfast::Handfast;
//!
//! # async fn debit() -> Result<(), std::io::Error> { Ok(()) }
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! let handfast = Handfast::connect("http://127.0.0.1:7091").application("order-service").await?;
//!
//! let order = handfast
//!     .transaction("place-order")
//!     .timeout(Duration::from_secs(30))
//!     .run(async |_tx| {
//!         debit().await?; // Local transactions, calls of other services.
//!         Ok::<_, std::io::Error>(42)
//!     })
//!     .await?; // Ok: committed. Err or dropped: rolled back.
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | connect | [`Handfast::connect`], [`Handfast::from_env`] |
//! | run work as a transaction | [`Handfast::transaction`], [`NewTransaction::run`] |
//! | run a function as a transaction | [`transaction`](macro@transaction) |
//! | repeat it after a deadlock | [`NewTransaction::retry`], [`Retry`] |
//! | decide by hand | [`NewTransaction::begin`], [`Global`] |
//! | make a database take part | [`Handfast::at`], [`AtResource`], [`Handfast::migrate`] |
//! | make an action take part, in try, confirm and cancel | [`Handfast::tcc`], [`Tcc`] |
//! | call a service without a library | [`Handfast::tcc_over_http`], [`HttpTcc`] |
//! | let the database itself prepare and commit | [`Handfast::xa`], [`XaResource`] |
//! | let something else prepare and commit | [`participant`] |
//! | have the database refuse writes past globals | [`guarded`] |
//! | let each operation of a branch take effect once | [`fence`] |
//! | have work of several services done step by step, or compensated | [`saga`] |
//! | lock something by a name | `Handfast::locks`, with the feature `locks` |
//! | tell others what has happened | [`outbox`], [`AtTransaction::emit`] |
//! | say what happens inside a transaction | [`Propagation`] |
//! | carry the transaction to other services | [`propagation`] |
//! | see it in traces | the feature `otel`, and spans of the target `handfast::trace` |
//! | know how it ended | [`TransactionError`], [`Handfast::outcome`] |
#![warn(missing_docs)]

#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres", feature = "sqlite")),
    expect(
        dead_code,
        unused_imports,
        unused_macros,
        reason = "without a database nothing calls what the databases have in common"
    )
)]
mod at;
mod begin_keys;
mod carried;
mod connect;
mod context;
mod coordinator;
mod environment;
mod error;
#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres", feature = "sqlite")),
    expect(dead_code, unused_macros, reason = "without a database nothing calls it")
)]
mod executor;
pub mod fence;
mod guard;
pub mod guarded;
mod last_commit;
mod limit;
mod link;
#[cfg(feature = "locks")]
mod locks;
pub mod outbox;
pub mod participant;
pub mod propagation;
pub mod saga;
mod tcc;
mod tm;
mod trace;
mod transient;
#[cfg_attr(
    not(any(feature = "mysql", feature = "postgres")),
    expect(dead_code, reason = "without a database nothing calls what is common")
)]
mod twophase;
mod unknown_outcome;
mod xid;

pub use at::{At, AtDatabase, AtError, AtResource, AtTransaction, Counter};
pub use connect::{Connect, Handfast};
pub use context::{begun_xid, current_xid};
pub use error::{Error, Rejection, RejectionDetail};
pub use guard::TransactionGuard;
#[cfg(feature = "macros")]
pub use handfast_macros::transaction;
pub use handfast_rm_core::{GlobalStatus, RollbackReason};
#[cfg(feature = "locks")]
pub use locks::CoordinatorLocks;
pub use tcc::{HttpTcc, HttpTryError, Tcc, TccBranch, TccError, TccResource};
pub use tm::{
    EndError, Global, NewTransaction, Propagation, RetriedTransaction, Retry, RollbackCause,
    Transaction, TransactionError,
};
pub use transient::is_transient;
pub use twophase::{Swept, Xa, XaDatabase, XaError, XaResource, XaTransaction};
pub use xid::Xid;

/// The pages for users: their fragments are compiled as they stand.
#[cfg(doctest)]
mod pages {
    #[cfg(feature = "postgres")]
    #[doc = include_str!("../../README.md")]
    struct Readme;

    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../rm-client/README.md")]
    struct CrateReadme;

    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../docs/start/first-transaction.md")]
    struct FirstTransaction;

    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../docs/recipes/after-the-commit.md")]
    struct AfterTheCommit;

    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../docs/recipes/exactly-once.md")]
    struct ExactlyOnce;

    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../docs/recipes/hot-stock.md")]
    struct HotStock;

    #[cfg(all(feature = "locks", feature = "sqlite"))]
    #[doc = include_str!("../../docs/recipes/nightly-job.md")]
    struct NightlyJob;

    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../docs/recipes/wait-for-a-person.md")]
    struct WaitForAPerson;

    #[cfg(all(feature = "macros", feature = "sqlite"))]
    #[doc = include_str!("../../docs/transactions.md")]
    struct Transactions;

    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../docs/recipes/sqlx.md")]
    struct HabitsOfSqlx;

    #[cfg(feature = "postgres")]
    #[doc = include_str!("../../docs/at.md")]
    struct AtPage;

    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../docs/tcc.md")]
    struct TccPage;

    #[cfg(feature = "postgres")]
    #[doc = include_str!("../../docs/xa.md")]
    struct TwoPhaseCommit;

    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../docs/saga.md")]
    struct SagaPage;

    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../docs/participants.md")]
    struct Participants;

    #[cfg(all(feature = "redis", feature = "sqlite"))]
    #[doc = include_str!("../../docs/fence.md")]
    struct FencePage;

    #[cfg(all(feature = "redis", feature = "sqlite"))]
    #[doc = include_str!("../../docs/outbox.md")]
    struct OutboxPage;
}
