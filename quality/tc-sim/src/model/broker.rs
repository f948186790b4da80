//! A model of a broker: a queue for each outbox, kept for certain, delivered in order and at least
//! once. One delivery of a queue is out at a time; what is not acknowledged for long comes again,
//! to whoever asks.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::database::Event;
use crate::plan::Fault;
use crate::world::{MS, Owner, SECOND, World};

/// How long a delivery may stay unacknowledged.
const OUT_MAX: u64 = 6 * SECOND;

/// A broker.
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
    /// The delivery of the first one, and until when it is waited for.
    out: Option<(u64, u64)>,
}

/// What the broker knows a delivery by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tag(u64);

/// The broker does not serve, or has not said that it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unavailable;

impl Broker {
    pub(crate) fn new(world: &Arc<World>) -> Self {
        Self { world: Arc::clone(world), state: Mutex::default() }
    }

    /// Publishes an event; confirmed, it is kept for certain.
    pub(crate) async fn publish(&self, queue: usize, event: Event) -> Result<(), Unavailable> {
        self.travel().await?;
        self.lock().queues.entry(queue).or_default().events.push_back(event);
        self.world.log(Owner::World, || format!("broker takes {:x}", event.id.0));
        self.answer(()).await
    }

    /// The next event of a queue, if there is one and none is out.
    pub(crate) async fn next(&self, queue: usize) -> Result<Option<(Tag, Event)>, Unavailable> {
        self.travel().await?;
        let delivery = self.lock().deliver(queue, self.world.now());
        self.answer(delivery).await
    }

    /// The effect of a delivery has happened.
    pub(crate) async fn acknowledge(&self, queue: usize, tag: Tag) -> Result<(), Unavailable> {
        self.travel().await?;
        self.lock().settle(queue, tag);
        self.answer(()).await
    }

    async fn travel(&self) -> Result<(), Unavailable> {
        let world = &self.world;
        world.sleep(world.between(50, 2 * MS)).await;
        if world.strikes(Fault::BrokerDown) {
            world.log(Owner::World, || "the broker is down".to_owned());
            // For this once, or for a while.
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
    fn deliver(&mut self, queue: usize, now: u64) -> Option<(Tag, Event)> {
        let queue = self.queues.get_mut(&queue)?;
        if queue.out.is_some_and(|(_, until)| until > now) {
            return None;
        }
        let event = *queue.events.front()?;
        self.tag_last += 1;
        queue.out = Some((self.tag_last, now + OUT_MAX));
        Some((Tag(self.tag_last), event))
    }

    /// A delivery that was given up meanwhile is settled by nobody.
    fn settle(&mut self, queue: usize, Tag(tag): Tag) {
        let Some(queue) = self.queues.get_mut(&queue) else { return };
        if queue.out.take_if(|(out, _)| *out == tag).is_some() {
            queue.events.pop_front();
        }
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").finish_non_exhaustive()
    }
}
