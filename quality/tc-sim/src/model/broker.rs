//! A model of a broker: one durable queue for each outbox, delivered in order and at least once.
//!
//! A queue has one delivery in flight at a time. One that is not acknowledged in time is delivered
//! again, to the next consumer that polls.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::values::Event;
use crate::plan::Fault;
use crate::world::{MS, Owner, SECOND, World};

/// How long a delivery may stay unacknowledged.
const IN_FLIGHT_MAX: u64 = 6 * SECOND;

pub(crate) struct Broker {
    world: Arc<World>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    queues: BTreeMap<usize, Queue>,
    tag_last: u64,
    down_until: u64,
}

#[derive(Debug, Default)]
struct Queue {
    events: VecDeque<Event>,
    /// The delivery of the first event, and the time at which it counts as lost.
    in_flight: Option<(u64, u64)>,
}

/// Identifies a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeliveryTag(u64);

/// The broker is down, or its answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unavailable;

impl Broker {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world), state: Mutex::default() }
    }

    /// Publishes an event. Once it is confirmed it is durable.
    pub(crate) async fn publish(&self, queue: usize, event: Event) -> Result<(), Unavailable> {
        self.travel().await?;
        self.lock().queues.entry(queue).or_default().events.push_back(event);
        self.world.log(Owner::World, || format!("broker takes {:x}", event.id.0));
        self.answer(()).await
    }

    /// Returns the next event of a queue, unless the queue is empty or has a delivery in flight.
    pub(crate) async fn next(
        &self,
        queue: usize,
    ) -> Result<Option<(DeliveryTag, Event)>, Unavailable> {
        self.travel().await?;
        let delivery = self.lock().deliver(queue, self.world.now());
        self.answer(delivery).await
    }

    /// Acknowledges a delivery, whose event has taken effect.
    pub(crate) async fn acknowledge(
        &self,
        queue: usize,
        tag: DeliveryTag,
    ) -> Result<(), Unavailable> {
        self.travel().await?;
        self.lock().settle(queue, tag);
        self.answer(()).await
    }

    async fn travel(&self) -> Result<(), Unavailable> {
        let world = &self.world;
        world.sleep(world.between(50, 2 * MS)).await;
        if world.strikes(Fault::BrokerDown) {
            world.log(Owner::World, || "the broker is down".to_owned());
            // For this message alone, or for up to 15 seconds.
            let longest = if world.draw(|random| random.happens(500)) { 0 } else { 15 * SECOND };
            self.lock().down_until = world.now() + world.between(0, longest);
            return Err(Unavailable);
        }
        if self.lock().down_until > world.now() && world.faulty() {
            return Err(Unavailable);
        }
        Ok(())
    }

    async fn answer<T>(&self, answer: T) -> Result<T, Unavailable> {
        self.world.sleep(self.world.between(50, 2 * MS)).await;
        if self.world.strikes(Fault::BrokerAnswerLost) { Err(Unavailable) } else { Ok(answer) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn deliver(&mut self, queue: usize, now: u64) -> Option<(DeliveryTag, Event)> {
        let queue = self.queues.get_mut(&queue)?;
        if queue.in_flight.is_some_and(|(_, until)| until > now) {
            return None;
        }
        let event = *queue.events.front()?;
        self.tag_last += 1;
        queue.in_flight = Some((self.tag_last, now + IN_FLIGHT_MAX));
        Some((DeliveryTag(self.tag_last), event))
    }

    /// Removes the event of a delivery. Does nothing if the event was delivered again meanwhile.
    fn settle(&mut self, queue: usize, DeliveryTag(tag): DeliveryTag) {
        let Some(queue) = self.queues.get_mut(&queue) else { return };
        if queue.in_flight.take_if(|(current, _)| *current == tag).is_some() {
            queue.events.pop_front();
        }
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").finish_non_exhaustive()
    }
}
