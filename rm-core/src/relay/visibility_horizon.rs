//! The visibility horizon: the number up to which every event that will ever exist is visible.
//!
//! A number is drawn when an event is inserted and visible when it is committed, so a smaller
//! number can appear after a greater one. On PostgreSQL a writer has its transaction number before
//! it draws the event's. So if the greatest visible event is `seq`, and a transaction number `mark`
//! is drawn after that was read, every transaction that can still commit an event below `seq` has a
//! number below `mark`. Once all those have ended, everything up to `seq` is visible.
//!
//! MySQL shows rows of running writers to a reader of uncommitted rows, which the claim uses
//! instead. SQLite has one writer at a time.

/// A mark that is not passed yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnreachedMark {
    seq: i64,
    mark: i64,
}

/// The horizon as far as the reads of one relay have settled it.
#[derive(Debug, Default)]
pub struct VisibilityHorizon {
    settled: i64,
    ahead: Option<UnreachedMark>,
}

impl VisibilityHorizon {
    /// Returns the number up to which events may be published.
    #[must_use]
    pub fn settled(&self) -> i64 {
        self.settled
    }

    /// Takes note of a read: all transactions before `oldest` have ended, and `seq` is the greatest
    /// visible event. Returns whether to draw a transaction number and to [`mark`](Self::mark)
    /// `seq` with it.
    pub fn wants_mark(&mut self, oldest: i64, seq: i64) -> bool {
        self.pass(oldest);
        self.ahead.is_none() && seq > self.settled
    }

    /// Marks `seq`: everything up to it is settled when all transactions before `mark` have ended.
    pub fn mark(&mut self, seq: i64, mark: i64) {
        self.ahead = Some(UnreachedMark { seq, mark });
    }

    /// Takes note that all transactions before `oldest` have ended.
    pub fn pass(&mut self, oldest: i64) {
        if let Some(ahead) = self.ahead.take_if(|ahead| ahead.mark <= oldest) {
            self.settled = ahead.seq;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_passed_when_all_before_it_have_ended() {
        let mut horizon =
            VisibilityHorizon { settled: 5, ahead: Some(UnreachedMark { seq: 9, mark: 100 }) };
        horizon.pass(99);
        assert_eq!((horizon.settled, horizon.ahead.is_some()), (5, true));
        horizon.pass(100);
        assert_eq!((horizon.settled, horizon.ahead), (9, None));
        horizon.pass(200);
        assert_eq!(horizon.settled, 9);
    }
}
