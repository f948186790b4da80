//! What runs beside each service: the relay of its outbox, and the consumers of what it hears.

use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;
use handfast::outbox::{Consumer, Relay};
use sqlx::{Pool, Transaction};

use handfast_example_shop::dialect::Dialect;
use handfast_example_shop::services::{Failure, Service};

use crate::broker::Broker;
use crate::fact::{Fact, Topic};
use crate::journal;

/// An order waits for several events one after the other, so that relays look often.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// What an event does, in a local transaction of the service that hears it.
pub(crate) type Effect<DB> =
    for<'l, 'c> fn(&'l mut Transaction<'c, DB>, Fact) -> BoxFuture<'l, Result<(), Failure>>;

/// Takes the events of the service's outbox to the broker.
pub(crate) fn relay<DB: Dialect>(service: &mut Service, pool: &Pool<DB>, broker: &Broker) {
    let relay = Relay::new(pool.clone(), broker.clone()).idle_max(LOOK_EVERY);
    service.beside(|stop| async move { Ok(relay.run(stop.cancelled()).await?) });
}

/// Lets the events of a topic take effect. `name` is the service's.
pub(crate) async fn consume<DB: Dialect>(
    service: &mut Service,
    pool: &Pool<DB>,
    broker: &Broker,
    (topic, name): (Topic, &'static str),
    effect: Effect<DB>,
) -> Result<()> {
    let events = broker.subscribe(topic, name).await?;
    let consumer = Consumer::new(pool.clone(), name);
    service.beside(move |stop| async move {
        let mut place = 0;
        let taken = consumer.run(
            events,
            |local, event| {
                place += 1;
                let place = place;
                Box::pin(async move {
                    journal::note(local, place, event).await?;
                    effect(local, Fact::of(event)?).await
                })
            },
            stop.cancelled(),
        );
        Ok(taken.await?)
    });
    Ok(())
}
