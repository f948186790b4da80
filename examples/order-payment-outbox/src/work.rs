//! The work beside the services: the relay of each outbox, and the consumers of each topic.
//!
//! It needs no more than databases and a broker, so that each part of it can be a task beside its
//! service or a process of its own, and goes on wherever one that died has stopped.

use std::time::Duration;

use anyhow::Result;
use futures::future::BoxFuture;
use handfast::outbox::{Consumer, Relay, Subscription};
use serde::{Deserialize, Serialize};
use sqlx::Transaction;

use handfast_example_shop::database::{Databases, Pool};
use handfast_example_shop::dialect::Dialect;
use handfast_example_shop::services::ServiceFailure;
use handfast_example_shop::with_pool;

use crate::broker::Broker;
use crate::fact::{Fact, Topic};
use crate::{account, journal, order, stock};

/// An order waits for several events one after the other, so that relays look often.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// The time that the keys of a killed relay wait for the next relay.
const LEASE: Duration = Duration::from_secs(3);

/// The service that does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Owner {
    Order,
    Stock,
    Account,
}

/// One part of the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WorkPart {
    /// Takes the events of the service's outbox to the broker.
    Relay(Owner),
    /// Lets the events of a topic take effect in the service.
    Consumer(Topic, Owner),
}

/// All work. Consumers come first: no events are published to a topic without a subscription.
pub(crate) const PARTS: [WorkPart; 8] = [
    WorkPart::Consumer(Topic::Orders, Owner::Stock),
    WorkPart::Consumer(Topic::Payments, Owner::Stock),
    WorkPart::Consumer(Topic::Stock, Owner::Account),
    WorkPart::Consumer(Topic::Stock, Owner::Order),
    WorkPart::Consumer(Topic::Payments, Owner::Order),
    WorkPart::Relay(Owner::Stock),
    WorkPart::Relay(Owner::Account),
    WorkPart::Relay(Owner::Order),
];

/// The effect of an event, in a local transaction of the service that consumes it.
type Effect<DB> =
    for<'l, 'c> fn(&'l mut Transaction<'c, DB>, Fact) -> BoxFuture<'l, Result<(), ServiceFailure>>;

/// A part that is subscribed to its events, and has not begun.
pub(crate) struct SubscribedPart {
    part: WorkPart,
    events: Option<Box<dyn Subscription>>,
}

impl Owner {
    fn name(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Stock => "stock",
            Self::Account => "account",
        }
    }

    /// The service's database.
    pub(crate) fn pool(self, databases: &Databases) -> &Pool {
        match self {
            Self::Order => &databases.order,
            Self::Stock => &databases.stock,
            Self::Account => &databases.account,
        }
    }

    /// Its location.
    pub(crate) fn place(self, databases: &Databases) -> &str {
        let [order, stock, account] = &databases.places;
        match self {
            Self::Order => order,
            Self::Stock => stock,
            Self::Account => account,
        }
    }
}

impl WorkPart {
    pub(crate) fn owner(self) -> Owner {
        match self {
            Self::Relay(owner) | Self::Consumer(_, owner) => owner,
        }
    }

    /// Subscribes, if the work is a consumer's.
    pub(crate) async fn prepare(self, broker: &Broker) -> Result<SubscribedPart> {
        let events = match self {
            Self::Relay(_) => None,
            Self::Consumer(topic, owner) => Some(broker.subscribe(topic, owner.name()).await?),
        };
        Ok(SubscribedPart { part: self, events })
    }
}

/// Returns the topic that a service consumes.
pub(crate) fn groups() -> Vec<(Topic, &'static str)> {
    let group = |part: &WorkPart| match part {
        WorkPart::Consumer(topic, owner) => Some((*topic, owner.name())),
        WorkPart::Relay(_) => None,
    };
    PARTS.iter().filter_map(group).collect()
}

impl SubscribedPart {
    /// Works until `stop` is ready.
    pub(crate) async fn run(
        self,
        pool: Pool,
        broker: Broker,
        stop: impl Future<Output = ()>,
    ) -> Result<()> {
        match (self.part, self.events) {
            (WorkPart::Consumer(topic, owner), Some(events)) => {
                let place = journal::last_place(&pool, topic).await?;
                with_pool!(&pool, |inner, _text| {
                    let consumer = Consumer::new(inner.clone(), owner.name());
                    consume(consumer, events, place, effect_of(owner), stop).await
                })
            }
            (WorkPart::Relay(_) | WorkPart::Consumer(..), _) => {
                with_pool!(&pool, |inner, _text| {
                    let relay = Relay::new(inner.clone(), broker).idle_max(LOOK_EVERY).lease(LEASE);
                    Ok(relay.run(stop).await?)
                })
            }
        }
    }
}

/// Returns the effect of the events that a service consumes.
fn effect_of<DB: Dialect>(owner: Owner) -> Effect<DB> {
    match owner {
        Owner::Order => order::on_answer,
        Owner::Stock => stock::on_news,
        Owner::Account => account::on_stock,
    }
}

/// `place` is that of the last event that was taken before.
async fn consume<DB: Dialect>(
    consumer: Consumer<DB>,
    events: Box<dyn Subscription>,
    mut place: i64,
    effect: Effect<DB>,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let taken = consumer.run(
        events,
        |local, event| {
            // Also of an attempt that fails: a COMMIT of one that was killed may have come late.
            place += 1;
            let place = place;
            Box::pin(async move {
                journal::note(local, place, event).await?;
                effect(local, Fact::of(event)?).await
            })
        },
        stop,
    );
    Ok(taken.await?)
}
