//! The batches that the journal has and the records lack, as pieces that are carried over one by
//! one, and when that is due.
//!
//! ```text
//! sealed segment │ carried over ... │ piece │ piece │ piece │
//! active segment │ piece │ open piece ──▶            room   │
//! ```
//!
//! A piece is carried over as late as possible where that makes less of it last: the globals in it
//! are forgotten meanwhile. Pure: nothing here reads or writes files.

use std::collections::VecDeque;
use std::ops::Range;

use handfast_core::Change;

/// The most bytes of a piece, which a checkpoint holds in memory. A batch may go beyond it.
const PIECE_BYTES_MAX: u64 = 8 << 20;
/// The least number of pieces of a segment.
const PIECES_MIN: u64 = 4;

/// Puts for each deletion: with more, most of what is put stays. A record is put several times, a
/// saga with each of its steps. Branches count too: where they end, globals are forgotten later.
const PUTS_PER_DELETION_MAX: u64 = 32;

/// Returns the bytes of a piece, which its last batch may go beyond.
pub(in crate::store) fn piece_bytes(segment_bytes: u64) -> u64 {
    PIECE_BYTES_MAX.min(segment_bytes / PIECES_MIN)
}

/// Successive batches in one segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) segment: usize,
    /// Where they are in the file.
    pub(super) bytes: Range<u64>,
    /// The number of the last of them.
    pub(super) last: u64,
}

/// The pieces that nothing carries over yet, in order.
#[derive(Debug)]
pub(super) struct Backlog {
    piece_bytes: u64,
    waiting: VecDeque<Piece>,
    /// The piece that is being written.
    open: Option<Piece>,
    /// The changes in it.
    changes: Changes,
    /// Records are deleted, so that less of a piece lasts the longer it waits.
    waiting_helps: bool,
    /// A piece was added, and waiting does not help: one must go before the next batch, so that
    /// there are never more of them (BOUNDED).
    is_overdue: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct Changes {
    puts: u64,
    deletions: u64,
}

impl Backlog {
    pub(super) fn new(segment_bytes: u64) -> Self {
        Self {
            piece_bytes: piece_bytes(segment_bytes),
            waiting: VecDeque::new(),
            open: None,
            changes: Changes::default(),
            waiting_helps: false,
            is_overdue: false,
        }
    }

    /// Adds a batch that is durable.
    pub(super) fn push(
        &mut self,
        segment: usize,
        bytes: Range<u64>,
        number: u64,
        changes: &[Change],
    ) {
        changes.iter().for_each(|change| self.changes.count(change));
        let start = self.open.as_ref().map_or(bytes.start, |open| open.bytes.start);
        self.open = Some(Piece { segment, bytes: start..bytes.end, last: number });
        if bytes.end - start >= self.piece_bytes {
            self.close();
        }
    }

    /// Ends the piece that is being written.
    pub(super) fn close(&mut self) {
        let Some(piece) = self.open.take() else { return };
        self.waiting_helps = std::mem::take(&mut self.changes).is_forgetting();
        self.is_overdue = !self.waiting_helps;
        self.waiting.push_back(piece);
    }

    /// Returns whether the next batch must wait until a piece is being carried over.
    pub(super) fn is_overdue(&self) -> bool {
        self.is_overdue && !self.waiting.is_empty()
    }

    /// Takes the next piece if it is due: at once if waiting does not help, otherwise when the
    /// pieces of the sealed segment are twice what the active one has room for. So they go twice as
    /// fast as the room, and the last of them goes before it is used up.
    pub(super) fn take_due(&mut self, active: usize, room: u64) -> Option<Piece> {
        let sealed = self.waiting.iter().filter(|piece| piece.segment != active);
        let sealed: u64 = sealed.map(|piece| piece.bytes.end - piece.bytes.start).sum();
        let is_due = !self.waiting_helps || (sealed > 0 && sealed >= room.saturating_mul(2));
        if is_due { self.take() } else { None }
    }

    /// Takes the next piece if it is in this segment.
    pub(super) fn take_of(&mut self, segment: usize) -> Option<Piece> {
        self.waiting.front().filter(|piece| piece.segment == segment)?;
        self.take()
    }

    /// Takes the next piece.
    pub(super) fn take(&mut self) -> Option<Piece> {
        self.is_overdue = false;
        self.waiting.pop_front()
    }
}

impl Changes {
    fn count(&mut self, change: &Change) {
        match change {
            Change::Put(_) => self.puts += 1,
            Change::Delete(_) => self.deletions += 1,
        }
    }

    fn is_forgetting(self) -> bool {
        self.deletions > 0 && self.deletions * PUTS_PER_DELETION_MAX >= self.puts
    }
}

#[cfg(test)]
mod tests {
    use handfast_core::{RecordKey, Xid};

    use super::*;
    use crate::store::test_records;

    const ROOM: u64 = 1_000;

    fn delete(xid: u64) -> Change {
        Change::Delete(RecordKey::Global(Xid(xid)))
    }

    fn put(xid: u64) -> Change {
        Change::Put(test_records::global(xid, "place-order"))
    }

    /// A backlog whose pieces have a fourth of the room of a segment, with so many of them in
    /// segment 0.
    fn with_pieces(count: u64, changes: &[Change]) -> Backlog {
        let mut backlog = Backlog::new(ROOM);
        (0..count).for_each(|number| add_piece(&mut backlog, 0, number, changes));
        backlog
    }

    fn add_piece(backlog: &mut Backlog, segment: usize, number: u64, changes: &[Change]) {
        let start = number % 4 * 250;
        backlog.push(segment, start..start + 100, 2 * number + 1, changes);
        backlog.push(segment, start + 100..start + 250, 2 * number + 2, &[]);
    }

    #[test]
    fn pieces_are_successive_batches() {
        let mut backlog = with_pieces(2, &[]);
        backlog.push(0, 500..510, 5, &[]);
        backlog.close();
        backlog.close();
        let pieces = std::iter::from_fn(|| backlog.take());
        let pieces: Vec<_> = pieces.map(|piece| (piece.bytes, piece.last)).collect();
        assert_eq!(pieces, [(0..250, 2), (250..500, 4), (500..510, 5)]);
    }

    #[test]
    fn what_stays_is_carried_over_at_once_and_the_next_batch_waits_for_it() {
        let mut backlog = with_pieces(2, &[put(1)]);
        for last in [2, 4] {
            assert_eq!(backlog.is_overdue(), last == 2, "one goes for each that was added");
            assert_eq!(backlog.take_due(0, ROOM).map(|piece| piece.last), Some(last));
        }
        assert!(!backlog.is_overdue());
        assert_eq!(backlog.take_due(0, ROOM), None);
    }

    #[test]
    fn what_is_forgotten_waits_until_room_becomes_short() {
        let mut backlog = with_pieces(4, &[put(2), delete(1)]);
        assert!(!backlog.is_overdue());
        assert_eq!(backlog.take_due(0, 0), None, "it is in the active segment");
        let mut due = Vec::new();
        for room in (0..=ROOM).rev() {
            due.extend(backlog.take_due(1, room).map(|piece| (room, piece.last)));
        }
        assert_eq!(due, [(500, 2), (375, 4), (250, 6), (125, 8)]);
    }

    #[test]
    fn pieces_of_one_segment_are_taken_for_its_use() {
        let mut backlog = with_pieces(1, &[delete(1)]);
        add_piece(&mut backlog, 1, 0, &[delete(2)]);
        assert_eq!(backlog.take_of(1), None, "that of segment 0 comes first");
        assert!(backlog.take_of(0).is_some());
        assert_eq!(backlog.take_of(0), None);
    }

    #[test]
    fn few_deletions_do_not_make_it_wait() {
        let puts: Vec<Change> = (0..=PUTS_PER_DELETION_MAX).map(put).collect();
        let mut backlog = with_pieces(1, &[&puts[..], &[delete(1)]].concat());
        assert!(backlog.take_due(0, ROOM).is_some());
        add_piece(&mut backlog, 0, 1, &[&puts[1..], &[delete(1)]].concat());
        assert_eq!(backlog.take_due(0, ROOM), None);
    }
}
