//! A growing list that never moves a full chunk.
//!
//! A vector that grows by doubling copies all of its items, and holds both copies meanwhile: with
//! millions of them that is the longest pause of all, and the memory of the copy before is long
//! left unused. Here only the last chunk, of at most 1,024 items, and the short list of chunks are
//! copied as they grow.

use std::ops::{Index, IndexMut};

/// Items of a chunk. More: a small list takes more memory. Fewer: more chunks.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 10;

#[derive(Clone, Debug)]
pub(crate) struct ChunkedList<T> {
    /// All but the last are full.
    chunks: Vec<Vec<T>>,
}

impl<T> Default for ChunkedList<T> {
    fn default() -> Self {
        Self { chunks: Vec::new() }
    }
}

impl<T> ChunkedList<T> {
    /// Adds an item. Returns its index.
    pub(crate) fn push(&mut self, item: T) -> usize {
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::new());
        }
        let before = (self.chunks.len() - 1) << CHUNK_BITS;
        let Some(last) = self.chunks.last_mut() else { return before };
        last.push(item);
        before + last.len() - 1
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten()
    }
}

impl<T> Index<usize> for ChunkedList<T> {
    type Output = T;

    fn index(&self, at: usize) -> &T {
        &self.chunks[at >> CHUNK_BITS][at % CHUNK]
    }
}

impl<T> IndexMut<usize> for ChunkedList<T> {
    fn index_mut(&mut self, at: usize) -> &mut T {
        &mut self.chunks[at >> CHUNK_BITS][at % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_keep_their_place() {
        let mut list = ChunkedList::default();
        let count = 3 * CHUNK + 1;
        assert!((0..count).all(|item| list.push(item) == item));
        list[CHUNK] = 7;
        assert!((0..count).all(|at| list[at] == if at == CHUNK { 7 } else { at }));
        assert_eq!(list.iter().count(), count);
    }

    #[test]
    fn a_full_chunk_is_never_moved() {
        let mut list = ChunkedList::default();
        (0..CHUNK).for_each(|item| _ = list.push(item));
        let first = &raw const list[0];
        (0..10 * CHUNK).for_each(|item| _ = list.push(item));
        assert_eq!(first, &raw const list[0]);
    }
}
