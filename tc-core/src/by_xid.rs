//! A map from XIDs that is in their order and has little to spare.
//!
//! XIDs are drawn one after the other, so what is there lies close together: neighbours share a
//! block, found by one look-up in a tree that is as many times smaller.

use std::collections::BTreeMap;

use crate::Xid;

/// XIDs a block. More: a straggler keeps more room for its finished neighbours. Fewer: more
/// blocks to find one's way among.
const BLOCK: u64 = 32;

#[derive(Clone, Debug)]
pub(crate) struct ByXid<T> {
    blocks: BTreeMap<u64, Box<Block<T>>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Block<T> {
    len: usize,
    entries: [Option<Box<T>>; BLOCK as usize],
}

impl<T> Default for ByXid<T> {
    fn default() -> Self {
        Self { blocks: BTreeMap::new(), len: 0 }
    }
}

impl<T> Block<T> {
    fn new() -> Box<Self> {
        Box::new(Self { len: 0, entries: [const { None }; BLOCK as usize] })
    }
}

impl<T> ByXid<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, xid: Xid) -> Option<&T> {
        let (block, place) = place_of(xid);
        self.blocks.get(&block)?.entries[place].as_deref()
    }

    pub(crate) fn get_mut(&mut self, xid: Xid) -> Option<&mut T> {
        let (block, place) = place_of(xid);
        self.blocks.get_mut(&block)?.entries[place].as_deref_mut()
    }

    pub(crate) fn insert(&mut self, xid: Xid, value: T) {
        let (block, place) = place_of(xid);
        let block = self.blocks.entry(block).or_insert_with(Block::new);
        let before = block.entries[place].replace(Box::new(value));
        let added = usize::from(before.is_none());
        block.len += added;
        self.len += added;
    }

    pub(crate) fn remove(&mut self, xid: Xid) -> Option<Box<T>> {
        let (number, place) = place_of(xid);
        let block = self.blocks.get_mut(&number)?;
        let removed = block.entries[place].take()?;
        block.len -= 1;
        self.len -= 1;
        if block.len == 0 {
            self.blocks.remove(&number);
        }
        Some(removed)
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.blocks.values().flat_map(|block| block.entries.iter().flatten().map(Box::as_ref))
    }

    /// In ascending order, from `first` on.
    pub(crate) fn from(&self, first: Xid) -> impl Iterator<Item = &T> {
        let (number, place) = place_of(first);
        self.blocks.range(number..).flat_map(move |(&at, block)| {
            let skipped = if at == number { place } else { 0 };
            block.entries[skipped..].iter().flatten().map(Box::as_ref)
        })
    }

    /// In descending order, from below `before`.
    pub(crate) fn below(&self, before: Xid) -> impl Iterator<Item = &T> {
        let (number, place) = place_of(before);
        self.blocks.range(..=number).rev().flat_map(move |(&at, block)| {
            let end = if at == number { place } else { block.entries.len() };
            block.entries[..end].iter().rev().flatten().map(Box::as_ref)
        })
    }
}

fn place_of(xid: Xid) -> (u64, usize) {
    (xid.0 / BLOCK, (xid.0 % BLOCK) as usize)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// It is the map that the standard library has, whatever is put in and taken out.
        #[test]
        fn it_is_an_ordered_map(steps in vec((0..200u64, any::<bool>()), 0..200), at in 0..200u64) {
            let (mut map, mut model) = (ByXid::default(), BTreeMap::new());
            for (xid, keep) in steps {
                if keep {
                    map.insert(Xid(xid), xid);
                    model.insert(xid, xid);
                } else {
                    prop_assert_eq!(map.remove(Xid(xid)).map(|it| *it), model.remove(&xid));
                }
            }
            prop_assert_eq!(map.len(), model.len());
            prop_assert_eq!(map.blocks.values().map(|it| it.len).sum::<usize>(), model.len());
            prop_assert!(map.blocks.values().all(|block| block.len > 0));
            prop_assert!(map.iter().eq(model.values()));
            prop_assert!(map.iter().rev().eq(model.values().rev()));
            prop_assert!(map.from(Xid(at)).eq(model.range(at..).map(|(_, value)| value)));
            prop_assert!(map.below(Xid(at)).eq(model.range(..at).rev().map(|(_, value)| value)));
            prop_assert_eq!(map.get(Xid(at)), model.get(&at));
            prop_assert_eq!(map.get_mut(Xid(at)), model.get_mut(&at));
        }
    }
}
