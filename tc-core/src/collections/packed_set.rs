//! An ordered set with little overhead in memory, for values that mostly come in ascending order.
//!
//! A tree of the standard library is left half empty by such values. Here they fill one chunk after
//! the other.

use std::collections::VecDeque;

/// The most values of a chunk. More: each change moves more of them. Fewer: more chunks.
const CHUNK: usize = 64;

#[derive(Clone, Debug)]
pub(crate) struct PackedSet<T> {
    /// In ascending order, none of them empty.
    chunks: VecDeque<Chunk<T>>,
}

#[derive(Clone, Debug)]
struct Chunk<T> {
    /// No value of it is less, and none of the chunk before it is as great.
    from: T,
    /// In ascending order.
    values: Vec<T>,
}

impl<T> Default for PackedSet<T> {
    fn default() -> Self {
        Self { chunks: VecDeque::new() }
    }
}

impl<T: Ord + Copy> PackedSet<T> {
    pub(crate) fn first(&self) -> Option<&T> {
        self.chunks.front().and_then(|chunk| chunk.values.first())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flat_map(|chunk| &chunk.values)
    }

    pub(crate) fn insert(&mut self, value: T) {
        let at = self.find(&value);
        let Some(chunk) = self.chunks.get_mut(at) else {
            return self.chunks.push_back(Chunk::new(value));
        };
        let Err(place) = chunk.values.binary_search(&value) else { return };
        if chunk.values.len() < CHUNK {
            chunk.from = chunk.from.min(value);
            chunk.values.insert(place, value);
        } else if place == CHUNK {
            self.chunks.insert(at + 1, Chunk::new(value));
        } else {
            let values = chunk.values.split_off(CHUNK / 2);
            self.chunks.insert(at + 1, Chunk { from: values[0], values });
            self.insert(value);
        }
    }

    pub(crate) fn remove(&mut self, value: &T) {
        let at = self.find(value);
        let Some(chunk) = self.chunks.get_mut(at) else { return };
        let Ok(place) = chunk.values.binary_search(value) else { return };
        chunk.values.remove(place);
        let left = chunk.values.len();
        if left == 0 {
            self.chunks.remove(at);
        } else if left <= chunk.values.capacity() / 4 {
            chunk.values.shrink_to(2 * left);
        }
    }

    /// Returns the index of the chunk that has the value, if any has it.
    fn find(&self, value: &T) -> usize {
        // Most values come at the end.
        if self.chunks.back().is_some_and(|last| last.from <= *value) {
            return self.chunks.len() - 1;
        }
        self.chunks.partition_point(|chunk| chunk.from <= *value).saturating_sub(1)
    }
}

impl<T: Copy> Chunk<T> {
    fn new(value: T) -> Self {
        Self { from: value, values: vec![value] }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// It behaves like the standard library's set, whatever is inserted and removed.
        #[test]
        fn it_is_an_ordered_set(steps in vec((0..600_u16, prop::bool::weighted(0.6)), 0..2_000)) {
            let (mut set, mut model) = (PackedSet::default(), BTreeSet::new());
            for (value, comes) in steps {
                if comes {
                    set.insert(value);
                    model.insert(value);
                } else {
                    set.remove(&value);
                    model.remove(&value);
                }
                prop_assert_eq!(set.first(), model.first());
            }
            prop_assert!(set.iter().eq(&model));
            prop_assert!(set.chunks.iter().all(|it| (1..=CHUNK).contains(&it.values.len())));
            prop_assert!(set.chunks.iter().all(|it| it.from <= it.values[0]));
        }
    }

    #[test]
    fn ascending_values_fill_the_chunks_and_leave_no_room_behind() {
        let mut set = PackedSet::default();
        (0..10 * CHUNK).for_each(|value| set.insert(value));
        assert_eq!(set.chunks.len(), 10);
        (1..10 * CHUNK).for_each(|value| set.remove(&value));
        assert_eq!(set.iter().collect::<Vec<_>>(), [&0]);
        assert!(set.chunks.len() == 1 && set.chunks[0].values.capacity() <= 4);
    }
}
