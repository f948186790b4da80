//! The newest batches as this process has stored them. Compaction takes them from here, where it
//! would otherwise ask the database for bytes that this process has just sent to it.

use std::collections::VecDeque;

use super::pages::StoredBatch;

/// The most bytes of batches that are kept. More only while compaction does not keep up; it then
/// reads the older ones from the database.
const BYTES_MAX: usize = 16 << 20;

/// Batches with successive numbers.
#[derive(Debug, Default)]
pub(super) struct RecentBatches {
    batches: VecDeque<StoredBatch>,
    bytes: usize,
}

impl RecentBatches {
    /// Adds a batch that is stored.
    pub(super) fn push(&mut self, batch: StoredBatch) {
        self.bytes += batch.bytes.len();
        self.batches.push_back(batch);
        while self.bytes > BYTES_MAX {
            let Some(oldest) = self.batches.pop_front() else { break };
            self.bytes -= oldest.bytes.len();
        }
    }

    /// Takes all batches out.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Returns the number of the first batch.
    pub(super) fn first(&self) -> Option<u64> {
        self.batches.front().map(|batch| batch.number)
    }

    /// Returns whether a batch is here.
    pub(super) fn has(&self, number: u64) -> bool {
        self.behind(number.saturating_sub(1)).next().is_some()
    }

    /// Returns the batches behind a number, in order; none if the next one is not here.
    pub(super) fn behind(&self, number: u64) -> impl Iterator<Item = &StoredBatch> {
        let at = self.first().and_then(|first| (number + 1).checked_sub(first));
        let at = at.and_then(|at| usize::try_from(at).ok()).unwrap_or(usize::MAX);
        self.batches.iter().skip(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(number: u64, bytes: usize) -> StoredBatch {
        StoredBatch { number, bytes: vec![0; bytes] }
    }

    #[test]
    fn batches_are_found_by_their_numbers() {
        let mut recent = RecentBatches::default();
        assert_eq!((recent.first(), recent.has(7)), (None, false));
        (7..10).for_each(|number| recent.push(batch(number, 1)));
        assert_eq!([6, 7, 9, 10].map(|number| recent.has(number)), [false, true, true, false]);
        let behind = |number| recent.behind(number).map(|batch| batch.number).collect::<Vec<_>>();
        assert_eq!([behind(6), behind(8)], [vec![7, 8, 9], vec![9]]);
        assert!(behind(5).is_empty() && behind(9).is_empty(), "no gap is passed over");
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_bytes() {
        let mut recent = RecentBatches::default();
        (1..=3).for_each(|number| recent.push(batch(number, BYTES_MAX / 2)));
        assert_eq!(recent.first(), Some(2));
        recent.push(batch(4, BYTES_MAX + 1));
        assert_eq!((recent.first(), recent.bytes), (None, 0));
        recent.push(batch(5, 1));
        assert_eq!((recent.take().first(), recent.first()), (Some(5), None));
    }
}
