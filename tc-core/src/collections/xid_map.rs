//! A map keyed by XID: in order, fast, and with little overhead in memory.
//!
//! XIDs are drawn one after the other, so the keys lie close together: neighbours share a block,
//! and the index of a block follows from its number unless blocks before it are gone.

use std::collections::VecDeque;

use crate::contract::Xid;

/// XIDs per block. More: one unfinished global keeps the room of more finished neighbours. Fewer:
/// more blocks.
const BLOCK: usize = 1 << BLOCK_BITS;
const BLOCK_BITS: u32 = 5;

#[derive(Clone, Debug)]
pub(crate) struct XidMap<T> {
    /// In ascending order. Empty blocks between others stay until they are the majority.
    blocks: VecDeque<Block<T>>,
    empty: usize,
    len: usize,
}

#[derive(Clone, Debug)]
struct Block<T> {
    number: u64,
    len: usize,
    entries: Option<Box<[Entry<T>; BLOCK]>>,
}

type Entry<T> = Option<Box<T>>;

impl<T> Default for XidMap<T> {
    fn default() -> Self {
        Self { blocks: VecDeque::new(), empty: 0, len: 0 }
    }
}

impl<T> XidMap<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, xid: Xid) -> Option<&T> {
        let (number, place) = place_of(xid);
        let block = &self.blocks[self.find(number).ok()?];
        block.entries.as_ref()?[place].as_deref()
    }

    pub(crate) fn get_mut(&mut self, xid: Xid) -> Option<&mut T> {
        let (number, place) = place_of(xid);
        let at = self.find(number).ok()?;
        self.blocks[at].entries.as_mut()?[place].as_deref_mut()
    }

    pub(crate) fn insert(&mut self, xid: Xid, value: T) {
        let (number, place) = place_of(xid);
        let at = self.find(number).unwrap_or_else(|at| {
            self.blocks.insert(at, Block { number, len: 0, entries: None });
            self.empty += 1;
            at
        });
        let block = &mut self.blocks[at];
        self.empty -= usize::from(block.len == 0);
        let entries = block.entries.get_or_insert_with(|| Box::new([const { None }; BLOCK]));
        let added = usize::from(entries[place].replace(Box::new(value)).is_none());
        block.len += added;
        self.len += added;
    }

    pub(crate) fn remove(&mut self, xid: Xid) -> Option<Box<T>> {
        let (number, place) = place_of(xid);
        let at = self.find(number).ok()?;
        let block = &mut self.blocks[at];
        let removed = block.entries.as_mut()?[place].take()?;
        block.len -= 1;
        self.len -= 1;
        if block.len == 0 {
            block.entries = None;
            self.empty += 1;
            self.sweep();
        }
        Some(removed)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.blocks.iter().flat_map(|block| block.entries().iter().flatten().map(Box::as_ref))
    }

    /// In ascending order, from `first` on.
    pub(crate) fn from(&self, first: Xid) -> impl Iterator<Item = &T> {
        let (number, place) = place_of(first);
        let at = self.find(number).unwrap_or_else(|at| at);
        self.blocks.range(at..).flat_map(move |block| {
            let skipped = if block.number == number { place } else { 0 };
            block.entries().iter().skip(skipped).flatten().map(Box::as_ref)
        })
    }

    /// In descending order, from below `before`.
    pub(crate) fn below(&self, before: Xid) -> impl Iterator<Item = &T> {
        let (number, place) = place_of(before);
        let end = self.find(number).map_or_else(|at| at, |at| at + 1);
        self.blocks.range(..end).rev().flat_map(move |block| {
            let taken = if block.number == number { place } else { BLOCK };
            block.entries().iter().take(taken).rev().flatten().map(Box::as_ref)
        })
    }

    /// Returns the index of a number's block, or the index at which to insert it.
    fn find(&self, number: u64) -> Result<usize, usize> {
        let (Some(first), Some(last)) = (self.blocks.front(), self.blocks.back()) else {
            return Err(0);
        };
        if number > last.number {
            return Err(self.blocks.len());
        }
        // The index if no block is missing behind it, or before it. One of the two holds for all
        // but a few blocks, also when the numbers leap with the next epoch.
        let from_end = (self.blocks.len() as u64 - 1).wrapping_sub(last.number - number);
        let from_start = number.wrapping_sub(first.number);
        for guess in [from_end, from_start] {
            let at = usize::try_from(guess).unwrap_or(usize::MAX);
            if self.blocks.get(at).is_some_and(|block| block.number == number) {
                return Ok(at);
            }
        }
        self.blocks.binary_search_by_key(&number, |block| block.number)
    }

    /// Drops empty blocks: those at the start, and all of them once they are the majority.
    fn sweep(&mut self) {
        // XIDs are drawn in order, so blocks become empty at the start first.
        while self.blocks.pop_front_if(|block| block.len == 0).is_some() {
            self.empty -= 1;
        }
        if self.empty > self.blocks.len() / 2 {
            self.blocks.retain(|block| block.len > 0);
            self.empty = 0;
        }
    }
}

impl<T> Block<T> {
    fn entries(&self) -> &[Entry<T>] {
        self.entries.as_ref().map_or(&[], |entries| &entries[..])
    }
}

fn place_of(xid: Xid) -> (u64, usize) {
    (xid.0 >> BLOCK_BITS, (xid.0 & ((1 << BLOCK_BITS) - 1)) as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// XIDs of two epochs.
    fn xid() -> impl Strategy<Value = u64> {
        prop_oneof![0..400u64, (1 << 40)..(1 << 40) + 400u64]
    }

    proptest! {
        /// It behaves like the standard library's map, whatever is inserted and removed.
        #[test]
        fn it_is_an_ordered_map(steps in vec((xid(), any::<bool>()), 0..300), at in xid()) {
            let (mut map, mut model) = (XidMap::default(), BTreeMap::new());
            for (xid, keep) in steps {
                if keep {
                    map.insert(Xid(xid), xid);
                    model.insert(xid, xid);
                } else {
                    prop_assert_eq!(map.remove(Xid(xid)).map(|it| *it), model.remove(&xid));
                }
            }
            prop_assert_eq!(map.len(), model.len());
            prop_assert_eq!(map.blocks.iter().map(|it| it.len).sum::<usize>(), model.len());
            prop_assert_eq!(map.blocks.iter().filter(|it| it.len == 0).count(), map.empty);
            prop_assert!(map.empty <= map.blocks.len() / 2);
            prop_assert!(map.iter().eq(model.values()));
            prop_assert!(map.iter().rev().eq(model.values().rev()));
            prop_assert!(map.from(Xid(at)).eq(model.range(at..).map(|(_, value)| value)));
            prop_assert!(map.below(Xid(at)).eq(model.range(..at).rev().map(|(_, value)| value)));
            prop_assert_eq!(map.get(Xid(at)), model.get(&at));
            prop_assert_eq!(map.get_mut(Xid(at)), model.get_mut(&at));
        }
    }
}
