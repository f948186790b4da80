//! A lock in segments, for a counter that is too hot for one lock: the stock of a flash sale lies
//! in several rows, each with a lock of its own, and a caller works under any that is free.
//!
//! This is made of single locks, and is the same on every backend. Each segment has its own fencing
//! tokens. The application decides what a segment holds, and in which row. Where one conditional
//! UPDATE is enough, none of this is needed.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::LockMode;
use crate::client::{Locks, run_under};
use crate::clock::Moment;
use crate::error::{LockError, ReleaseOutcome};
use crate::guard::Guard;
use crate::machine::WaitPolicy;
use crate::multi::Guards;
use crate::name::LockName;

/// The largest number of segments: a caller that finds nothing has visited all of them.
const SEGMENTS_MAX: u32 = 1024;

/// A lock in segments. See [`Locks::segmented`]. Clones share what they know of each other's
/// callers, so make one and clone it.
///
/// ```
/// use handfast_locks::{LockError, Locks, MemoryLocks, SegmentedLock};
///
/// /// In real life a row for each segment, claimed before it is read.
/// async fn buy(tickets: &SegmentedLock, left: &mut [u32]) -> Result<Option<usize>, LockError> {
///     let mut segments = tickets.visit_segments();
///     while let Some(segment) = segments.next_segment().await? {
///         if left[segment.index()] > 0 {
///             left[segment.index()] -= 1;
///             return Ok(Some(segment.index()));
///         }
///     }
///     Ok(None)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), LockError> {
/// let locks = Locks::over(MemoryLocks::new()).start()?;
/// let tickets = locks.segmented("tickets", 4)?;
/// let mut left = [0, 0, 1, 0];
/// assert_eq!(buy(&tickets, &mut left).await?, Some(2));
/// assert_eq!(buy(&tickets, &mut left).await?, None); // sold out
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SegmentedLock {
    locks: Locks,
    names: Arc<[LockName]>,
    table: Arc<Mutex<SegmentTable>>,
}

/// A segment that is held. Dropping it releases it.
#[derive(Debug)]
#[must_use = "the segment is released when this is dropped"]
pub struct Segment {
    // Dropped before the reservation: a segment without callers has been released.
    guard: Guard,
    reservation: Reservation,
}

/// A visit to the segments, each once. See [`SegmentedLock::visit_segments`].
#[derive(Debug)]
#[must_use = "a visit begins with its first segment"]
pub struct SegmentVisit<'l> {
    segmented: &'l SegmentedLock,
    unvisited: Vec<bool>,
    /// The segment that was returned last. It counts as not exhausted until the next one is
    /// requested.
    last: Option<usize>,
}

/// The knowledge of this client's callers about the segments. It chooses the order in which they
/// are tried, and decides nothing else.
#[derive(Debug)]
struct SegmentTable {
    segments: Vec<SegmentState>,
    /// The segment to begin with, so that callers spread.
    turn: usize,
}

#[derive(Clone, Debug, Default)]
struct SegmentState {
    /// The callers of this client that hold the segment or wait for it.
    callers: u32,
    /// Whether the last caller found nothing in it.
    is_spent: bool,
}

/// A caller of a segment, from before its request until the segment is released.
#[derive(Debug)]
struct Reservation {
    table: Arc<Mutex<SegmentTable>>,
    index: usize,
    /// Whether no other caller of this client was there.
    is_first: bool,
}

impl Locks {
    /// Returns a lock in segments, numbered from 0. Each is the lock `name#index`.
    ///
    /// # Errors
    /// [`LockError::Name`]. [`LockError::Settings`] for no segment, or more than 1024.
    pub fn segmented(&self, name: &str, segments: u32) -> Result<SegmentedLock, LockError> {
        if !(1..=SEGMENTS_MAX).contains(&segments) {
            let reason = "a lock has from 1 to 1024 segments";
            return Err(LockError::Settings { reason });
        }
        let names = (0..segments).map(|index| LockName::new(format!("{name}#{index}")));
        let names = names.collect::<Result<Arc<[LockName]>, _>>()?;
        let table = SegmentTable { segments: vec![SegmentState::default(); names.len()], turn: 0 };
        Ok(SegmentedLock { locks: self.clone(), names, table: Arc::new(Mutex::new(table)) })
    }
}

impl SegmentedLock {
    /// Returns the number of segments.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.names.len()
    }

    /// Takes any segment that is free. If none is, waits in the queue of the segment with the
    /// fewest callers of this client, first come first served, and stays in that queue.
    ///
    /// # Errors
    /// Those of [`Locks::lock`].
    pub async fn lock(&self) -> Result<Segment, LockError> {
        self.any(WaitPolicy::Forever).await
    }

    /// Takes any segment that is free. Does not wait.
    ///
    /// # Errors
    /// [`LockError::Busy`] with the segment that was tried last, and the errors of
    /// [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Segment, LockError> {
        self.any(WaitPolicy::NoWait).await
    }

    /// As [`lock`](Self::lock), for a limited time.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] with the segment that was waited for, and the errors of
    /// [`lock`](Self::lock).
    pub async fn lock_timeout(&self, limit: Duration) -> Result<Segment, LockError> {
        self.any(WaitPolicy::Until(Moment::now() + limit)).await
    }

    /// Begins a visit to the segments, for a caller whose segment may be exhausted. Each segment is
    /// taken once: any free one among those not visited yet.
    pub fn visit_segments(&self) -> SegmentVisit<'_> {
        SegmentVisit { segmented: self, unvisited: vec![true; self.segments()], last: None }
    }

    /// Waits for all segments: to count what is in them, to refill them, or to move it between
    /// them.
    ///
    /// # Errors
    /// The errors of [`Locks::lock_all`].
    pub async fn lock_all(&self) -> Result<Guards, LockError> {
        let names: Vec<&str> = self.names.iter().map(LockName::as_str).collect();
        self.locks.lock_all(&names).await
    }

    async fn any(&self, wait: WaitPolicy) -> Result<Segment, LockError> {
        self.one_of(&vec![true; self.segments()], wait).await
    }

    /// Tries the segments that may be taken, best first. A segment with a caller of this client
    /// need not be tried: it is taken, and worth waiting for as much as any other.
    async fn one_of(&self, open: &[bool], wait: WaitPolicy) -> Result<Segment, LockError> {
        let mut untried = open.to_vec();
        let mut refused = None;
        while let Some(reservation) = self.reserve(&untried) {
            untried[reservation.index] = false;
            let is_patient = !matches!(wait, WaitPolicy::NoWait);
            if is_patient && !reservation.is_first {
                return self.acquire(reservation, wait).await;
            }
            match self.acquire(reservation, WaitPolicy::NoWait).await {
                Err(error @ LockError::Busy { .. }) => refused = Some(error),
                answered => return answered,
            }
        }
        if let (WaitPolicy::NoWait, Some(busy)) = (wait, refused) {
            return Err(busy);
        }
        let reservation = self.reserve(open).expect("a caller has a segment left to visit");
        self.acquire(reservation, wait).await
    }

    async fn acquire(
        &self,
        reservation: Reservation,
        wait: WaitPolicy,
    ) -> Result<Segment, LockError> {
        let name = self.names[reservation.index].clone();
        let guard = self.locks.acquire_mode(name, LockMode::Exclusive, wait).await?;
        Ok(Segment { guard, reservation })
    }

    /// Reserves the best of the open segments.
    fn reserve(&self, open: &[bool]) -> Option<Reservation> {
        let mut table = lock(&self.table);
        let index = table.best(open)?;
        table.turn = (index + 1) % table.segments.len();
        let segment = &mut table.segments[index];
        let is_first = segment.callers == 0;
        segment.callers += 1;
        Some(Reservation { table: Arc::clone(&self.table), index, is_first })
    }
}

impl Segment {
    /// Returns the index of the segment, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.reservation.index
    }

    /// Returns the guard of the segment's lock, with its fencing token.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Releases the segment and returns whether it was held to the end.
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    pub async fn release(self) -> Result<ReleaseOutcome, LockError> {
        // The reservation lasts until the backend has answered.
        let Self { guard, reservation: _seat } = self;
        guard.release().await
    }

    /// Runs work under the segment, stops the work if the segment is lost, and releases it.
    ///
    /// # Errors
    /// [`LockError::Lost`], as [`Locks::run`].
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, LockError> {
        let Self { guard, reservation: _seat } = self;
        run_under(guard, work).await
    }
}

impl SegmentVisit<'_> {
    /// Returns the next segment, after the last one was found exhausted and dropped. Returns `None`
    /// if all segments were visited, each under its lock.
    ///
    /// `None` means "nothing is left" as long as nothing is put back. A caller that refills
    /// segments or moves stock between them holds [`lock_all`](SegmentedLock::lock_all) meanwhile.
    /// A visit that had passed some of the segments before that still misses what was added to
    /// them.
    ///
    /// Later callers of this client try the exhausted segments last, and still try all of them.
    ///
    /// # Errors
    /// Those of [`Locks::lock`].
    pub async fn next_segment(&mut self) -> Result<Option<Segment>, LockError> {
        if let Some(last) = self.last.take() {
            lock(&self.segmented.table).segments[last].is_spent = true;
        }
        if !self.unvisited.contains(&true) {
            return Ok(None);
        }
        let segment = self.segmented.one_of(&self.unvisited, WaitPolicy::Forever).await?;
        // It is marked only once it is held: if this future is dropped while it waits, the segment
        // is still to be visited.
        self.unvisited[segment.index()] = false;
        self.last = Some(segment.index());
        Ok(Some(segment))
    }
}

/// The caller did not request another segment, so there was something in the last one.
impl Drop for SegmentVisit<'_> {
    fn drop(&mut self) {
        if let Some(last) = self.last {
            lock(&self.segmented.table).segments[last].is_spent = false;
        }
    }
}

impl SegmentTable {
    /// Returns the open segment where something is likely to be left, of those the one with the
    /// fewest callers, and of those the next in turn.
    fn best(&self, open: &[bool]) -> Option<usize> {
        let count = self.segments.len();
        let after_turn = |index: usize| (index + count - self.turn) % count;
        let segments = self.segments.iter().enumerate().filter(|(index, _)| open[*index]);
        let best = segments
            .min_by_key(|(index, segment)| (segment.is_spent, segment.callers, after_turn(*index)));
        best.map(|(index, _)| index)
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        lock(&self.table).segments[self.index].callers -= 1;
    }
}

/// No change to the table panics half-way.
fn lock(table: &Mutex<SegmentTable>) -> std::sync::MutexGuard<'_, SegmentTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for SegmentedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segmented").field("names", &self.names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(segments: [(u32, bool); 4], turn: usize) -> SegmentTable {
        let segment = |(callers, is_spent)| SegmentState { callers, is_spent };
        SegmentTable { segments: segments.into_iter().map(segment).collect(), turn }
    }

    #[test]
    fn best_segment_has_stock_and_few_callers() {
        let all = [true; 4];
        let empty = (0, false);
        assert_eq!(table([empty; 4], 0).best(&all), Some(0));
        assert_eq!(table([empty; 4], 3).best(&all), Some(3));
        assert_eq!(table([empty; 4], 3).best(&[true, true, true, false]), Some(0));
        assert_eq!(table([(2, false), (1, false), (1, false), (9, false)], 2).best(&all), Some(2));
        assert_eq!(table([(0, true), (0, true), (5, false), (0, true)], 0).best(&all), Some(2));
        assert_eq!(table([empty; 4], 0).best(&[false; 4]), None);
    }
}
