//! Events for other services, sent if and only if the local transaction that emits them commits.
//!
//! An event is a row of `event_outbox`, written by the local transaction whose change it reports. A
//! [`Relay`] publishes it to a broker. A consumer writes a row of `event_inbox` in the local
//! transaction of the event's effect, so that the effect happens once however often the event is
//! delivered.
//!
//! | to | use |
//! | --- | --- |
//! | make an event | [`Event`] |
//! | emit it in a local transaction of sqlx | [`emit`] |
//! | emit it in AT mode, held until the global commits | [`AtTransaction::emit`] |
//! | take events to a broker | [`Relay`], to [`InProcess`], or `RedisStreams`, `RabbitMq` and |
//! | | `JetStream` (features `redis`, `rabbitmq` and `nats`) |
//! | let an event take effect once | [`Consumer`] |
//! | look at events, requeue or skip what is parked | [`list`], [`lag`], [`requeue`], [`skip`] |
//!
//! Only a relay that [reports](Relay::report_to) knows the coordinator. Whether a held event may be
//! published shows in the undo row of its branch (HELD-UNDO). One local transaction writes both. A
//! commit of the global removes the undo row alone, and a rollback removes both at once.
//!
//! [`AtTransaction::emit`]: crate::AtTransaction::emit

mod broker;
mod error;
mod event;
mod inbox;
mod operate;
mod query;
mod relay;
mod table;

use sqlx::{Pool, Transaction};

pub use self::broker::{
    Broker, Delivery, InProcess, InProcessSubscription, PublishError, Subscription,
};
#[cfg(feature = "nats")]
pub use self::broker::{JetStream, JetStreamSubscription};
#[cfg(feature = "rabbitmq")]
pub use self::broker::{RabbitMq, RabbitMqSubscription};
#[cfg(feature = "redis")]
pub use self::broker::{RedisStreams, RedisSubscription};
pub use self::error::OutboxError;
pub use self::event::{Event, EventId};
pub use self::inbox::{Consumer, Received};
pub use self::operate::{
    EventRow, Lag, lag, list, mark_processed, purge, purge_inbox, requeue, skip,
};
pub use self::relay::Relay;
#[cfg(feature = "postgres")]
pub(crate) use self::table::CHANNEL;
pub use self::table::EventState;
pub(crate) use self::table::{Within, count_held, insert, release_held, remove_held};
use crate::at::{AtDatabase, AtError};

/// Creates the client tables of a database, those for events among them, or brings them up to date.
/// The same as [`Handfast::migrate`](crate::Handfast::migrate), for services that use no
/// coordinator.
///
/// # Errors
/// Those of [`Handfast::migrate`](crate::Handfast::migrate).
pub async fn migrate<DB: AtDatabase>(pool: &Pool<DB>) -> Result<(), AtError> {
    crate::at::migrate(pool).await
}

/// Emits an event in a local transaction of the caller. It is published after that has committed.
///
/// Emit the event after the change that it reports: the row lock of the change then keeps the
/// events of one key in the order of their changes.
///
/// ```
/// use handfast::outbox::{Event, OutboxError, emit};
///
/// async fn place(pool: &sqlx::SqlitePool) -> Result<(), OutboxError> {
///     let mut local = pool.begin().await?;
///     sqlx::query("INSERT INTO orders (id) VALUES (7)").execute(&mut *local).await?;
///     emit(&mut local, &Event::new("orders", "7").payload("placed")).await?;
///     local.commit().await?;
///     Ok(())
/// }
/// ```
///
/// # Errors
/// [`OutboxError::Malformed`] and [`OutboxError::TooLarge`], before anything is sent;
/// [`OutboxError::TableMissing`]; or the error of the database.
pub async fn emit<DB: AtDatabase>(
    local: &mut Transaction<'_, DB>,
    event: &Event,
) -> Result<(), OutboxError> {
    insert::<DB>(local, event, Within::Itself).await
}
