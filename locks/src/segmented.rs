//! A lock in segments, for a counter that is too hot for one: the stock of a flash sale lies in
//! several rows, each with a lock of its own, and a caller works under any that is free.
//!
//! Made of single locks, on every backend alike; each segment has its own fence. What a segment
//! holds, and in which row, is the application's. Where one conditional UPDATE does, none of this
//! is needed.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::Share;
use crate::client::{Locks, run_under};
use crate::clock::Moment;
use crate::error::{LockError, Outcome};
use crate::guard::Guard;
use crate::machine::Patience;
use crate::name::LockName;
use crate::several::Guards;

/// The most segments: whoever finds nothing has been to all of them.
const SEGMENTS_MAX: u32 = 1024;

/// A lock in segments, see [`Locks::segmented`]. Clones know of one another's callers; make one and
/// clone it.
///
/// ```
/// use handfast_locks::{LockError, Locks, Memory, Segmented};
///
/// /// In real life a row for each segment, claimed before it is read.
/// async fn buy(tickets: &Segmented, left: &mut [u32]) -> Result<Option<usize>, LockError> {
///     let mut round = tickets.round();
///     while let Some(segment) = round.next_segment().await? {
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
/// let locks = Locks::over(Memory::new()).start()?;
/// let tickets = locks.segmented("tickets", 4)?;
/// let mut left = [0, 0, 1, 0];
/// assert_eq!(buy(&tickets, &mut left).await?, Some(2));
/// assert_eq!(buy(&tickets, &mut left).await?, None); // sold out
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Segmented {
    locks: Locks,
    names: Arc<[LockName]>,
    desk: Arc<Mutex<Desk>>,
}

/// A segment that is held. Dropping it lets it go.
#[derive(Debug)]
#[must_use = "the segment is let go when this is dropped"]
pub struct Segment {
    // Dropped before the seat: a place that looks empty has been let go.
    guard: Guard,
    seat: Seat,
}

/// A way through the segments, see [`Segmented::round`].
#[derive(Debug)]
#[must_use = "a round begins with its first segment"]
pub struct Round<'l> {
    segmented: &'l Segmented,
    unseen: Vec<bool>,
    /// Until another one is asked for, something is in it.
    last: Option<usize>,
}

/// What this client's callers know of the segments. It chooses the order in which they are tried
/// and decides nothing else.
#[derive(Debug)]
struct Desk {
    places: Vec<Place>,
    /// Where to begin, so that callers spread.
    turn: usize,
}

#[derive(Clone, Debug, Default)]
struct Place {
    /// Callers of this client who hold the segment or are asking for it.
    callers: u32,
    /// Whether the last one to look found nothing in it.
    is_spent: bool,
}

/// A caller at a segment, from before it asks until it has let go.
#[derive(Debug)]
struct Seat {
    desk: Arc<Mutex<Desk>>,
    index: usize,
    /// Whether nobody else of this client was there.
    is_alone: bool,
}

impl Locks {
    /// A lock in so many segments, from 0. Each is the lock `name#index`.
    ///
    /// # Errors
    /// [`LockError::Name`]; [`LockError::Settings`] for no segment, or more than 1024.
    pub fn segmented(&self, name: &str, segments: u32) -> Result<Segmented, LockError> {
        if !(1..=SEGMENTS_MAX).contains(&segments) {
            let reason = "a lock has from 1 to 1024 segments";
            return Err(LockError::Settings { reason });
        }
        let names = (0..segments).map(|index| LockName::new(format!("{name}#{index}")));
        let names = names.collect::<Result<Arc<[LockName]>, _>>()?;
        let desk = Desk { places: vec![Place::default(); names.len()], turn: 0 };
        Ok(Segmented { locks: self.clone(), names, desk: Arc::new(Mutex::new(desk)) })
    }
}

impl Segmented {
    /// How many there are.
    #[must_use]
    pub fn segments(&self) -> usize {
        self.names.len()
    }

    /// Takes any segment that is free. If none is, waits for the one where the fewest of this
    /// client's callers are, first come first served, and stays in that queue.
    ///
    /// # Errors
    /// Those of [`Locks::lock`].
    pub async fn lock(&self) -> Result<Segment, LockError> {
        self.any(Patience::Endless).await
    }

    /// Takes any segment that is free, and does not wait.
    ///
    /// # Errors
    /// [`LockError::Busy`] with the segment that was tried last, and those of
    /// [`lock`](Self::lock).
    pub async fn try_lock(&self) -> Result<Segment, LockError> {
        self.any(Patience::None).await
    }

    /// As [`lock`](Self::lock), and waits for a limited time.
    ///
    /// # Errors
    /// [`LockError::TimedOut`] with the segment that was waited for, and those of
    /// [`lock`](Self::lock).
    pub async fn lock_timeout(&self, limit: Duration) -> Result<Segment, LockError> {
        self.any(Patience::Until(Moment::now() + limit)).await
    }

    /// A way through the segments for a caller whose own may be exhausted: each is taken once, any
    /// that is free among those not seen yet.
    pub fn round(&self) -> Round<'_> {
        Round { segmented: self, unseen: vec![true; self.segments()], last: None }
    }

    /// Waits for all segments: to count what is in them, to fill them up, to move it about.
    ///
    /// # Errors
    /// Those of [`Locks::lock_all`].
    pub async fn lock_all(&self) -> Result<Guards, LockError> {
        let names: Vec<&str> = self.names.iter().map(LockName::as_str).collect();
        self.locks.lock_all(&names).await
    }

    async fn any(&self, patience: Patience) -> Result<Segment, LockError> {
        self.one_of(&vec![true; self.segments()], patience).await
    }

    /// Tries the segments that may be taken, best first. A segment where somebody of this client is
    /// already need not be tried: it is taken, and worth waiting for as much as any other.
    async fn one_of(&self, open: &[bool], patience: Patience) -> Result<Segment, LockError> {
        let mut untried = open.to_vec();
        let mut refused = None;
        while let Some(seat) = self.sit_down(&untried) {
            untried[seat.index] = false;
            let is_patient = !matches!(patience, Patience::None);
            if is_patient && !seat.is_alone {
                return self.ask(seat, patience).await;
            }
            match self.ask(seat, Patience::None).await {
                Err(error @ LockError::Busy { .. }) => refused = Some(error),
                answered => return answered,
            }
        }
        if let (Patience::None, Some(busy)) = (patience, refused) {
            return Err(busy);
        }
        let seat = self.sit_down(open).expect("whoever asks has a segment left to see");
        self.ask(seat, patience).await
    }

    async fn ask(&self, seat: Seat, patience: Patience) -> Result<Segment, LockError> {
        let name = self.names[seat.index].clone();
        let guard = self.locks.share(name, Share::All, patience).await?;
        Ok(Segment { guard, seat })
    }

    /// A seat at the best of the open places.
    fn sit_down(&self, open: &[bool]) -> Option<Seat> {
        let mut desk = lock(&self.desk);
        let index = desk.best(open)?;
        desk.turn = (index + 1) % desk.places.len();
        let place = &mut desk.places[index];
        let is_alone = place.callers == 0;
        place.callers += 1;
        Some(Seat { desk: Arc::clone(&self.desk), index, is_alone })
    }
}

impl Segment {
    /// Which segment, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.seat.index
    }

    /// Its lock: the fence, the claim, whether it is lost.
    pub fn guard(&self) -> &Guard {
        &self.guard
    }

    /// Lets it go and tells how it stood.
    ///
    /// # Errors
    /// Those of [`Guard::release`].
    pub async fn release(self) -> Result<Outcome, LockError> {
        // The seat is taken until the backend has answered.
        let Self { guard, seat: _seat } = self;
        guard.release().await
    }

    /// Runs work under it, stops the work when the segment is lost, and lets it go.
    ///
    /// # Errors
    /// [`LockError::Lost`], as [`Locks::run`].
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, LockError> {
        let Self { guard, seat: _seat } = self;
        run_under(guard, work).await
    }
}

impl Round<'_> {
    /// The next segment, when the last one was found exhausted and has been dropped. `None` says
    /// that all have been seen, each under its lock.
    ///
    /// That means "nothing is left" as long as nothing is put back. Whoever fills up or moves stock
    /// from segment to segment holds [`lock_all`](Segmented::lock_all) meanwhile; a caller who had
    /// been to some of the segments before has still missed what came.
    ///
    /// Later callers of this client try the exhausted ones last. They try them all the same.
    ///
    /// # Errors
    /// Those of [`Locks::lock`].
    pub async fn next_segment(&mut self) -> Result<Option<Segment>, LockError> {
        if let Some(last) = self.last.take() {
            lock(&self.segmented.desk).places[last].is_spent = true;
        }
        if !self.unseen.contains(&true) {
            return Ok(None);
        }
        let segment = self.segmented.one_of(&self.unseen, Patience::Endless).await?;
        self.unseen[segment.index()] = false;
        self.last = Some(segment.index());
        Ok(Some(segment))
    }
}

/// Nobody has asked for another one: there was something in the last.
impl Drop for Round<'_> {
    fn drop(&mut self) {
        if let Some(last) = self.last {
            lock(&self.segmented.desk).places[last].is_spent = false;
        }
    }
}

impl Desk {
    /// Where something is likely to be left, then where the fewest are, then the next in turn.
    fn best(&self, open: &[bool]) -> Option<usize> {
        let count = self.places.len();
        let after_turn = |index: usize| (index + count - self.turn) % count;
        let places = self.places.iter().enumerate().filter(|(index, _)| open[*index]);
        let best =
            places.min_by_key(|(index, place)| (place.is_spent, place.callers, after_turn(*index)));
        best.map(|(index, _)| index)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.desk).places[self.index].callers -= 1;
    }
}

/// No step on a desk panics half-way.
fn lock(desk: &Mutex<Desk>) -> std::sync::MutexGuard<'_, Desk> {
    desk.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Segmented {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Segmented").field("names", &self.names).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desk(places: [(u32, bool); 4], turn: usize) -> Desk {
        let place = |(callers, is_spent)| Place { callers, is_spent };
        Desk { places: places.into_iter().map(place).collect(), turn }
    }

    #[test]
    fn the_best_place_has_something_left_and_few_callers() {
        let all = [true; 4];
        let empty = (0, false);
        assert_eq!(desk([empty; 4], 0).best(&all), Some(0));
        assert_eq!(desk([empty; 4], 3).best(&all), Some(3));
        assert_eq!(desk([empty; 4], 3).best(&[true, true, true, false]), Some(0));
        assert_eq!(desk([(2, false), (1, false), (1, false), (9, false)], 2).best(&all), Some(2));
        assert_eq!(desk([(0, true), (0, true), (5, false), (0, true)], 0).best(&all), Some(2));
        assert_eq!(desk([empty; 4], 0).best(&[false; 4]), None);
    }
}
