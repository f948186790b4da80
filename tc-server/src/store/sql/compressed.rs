//! Batches as the database stores them: compressed, where that makes them smaller.
//!
//! ```text
//! magic (4) · length of the frame (4, little-endian) · the frame as an LZ4 block
//! ```
//!
//! The records of a batch resemble each other, and databases are slow with large values: InnoDB
//! keeps one of more than half a page outside of its row, and takes longer to delete it than to
//! store it. The checksum is that of the frame.

use std::borrow::Cow;

use lz4_flex::block;

const MAGIC: [u8; 4] = *b"hfZ1";
const HEADER_BYTES: usize = 8;
/// A byte of a block stands for no more bytes than this.
const RATIO_MAX: usize = 255;
/// The least frame that is compressed: smaller ones are stored in their row in any case.
const FRAME_BYTES_MIN: usize = 1 << 10;

/// Compresses a frame, unless it stays as large as it is.
pub(super) fn compress(frame: Vec<u8>) -> Vec<u8> {
    let Ok(length) = u32::try_from(frame.len()) else { return frame };
    if frame.len() < FRAME_BYTES_MIN {
        return frame;
    }
    let block = block::compress(&frame);
    if HEADER_BYTES + block.len() >= frame.len() {
        return frame;
    }
    [&MAGIC, &length.to_le_bytes(), &block[..]].concat()
}

/// Returns the frame of what is stored. What is not compressed is the frame itself, or damaged.
pub(super) fn decompress(stored: &[u8]) -> Cow<'_, [u8]> {
    try_decompress(stored).map_or(Cow::Borrowed(stored), Cow::Owned)
}

fn try_decompress(stored: &[u8]) -> Option<Vec<u8>> {
    let (length, block) = stored.strip_prefix(&MAGIC)?.split_first_chunk()?;
    let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
    if length > block.len().saturating_mul(RATIO_MAX) {
        return None;
    }
    block::decompress(block, length).ok().filter(|frame| frame.len() == length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn records_alike() -> Vec<u8> {
        (0..100_u32).flat_map(|number| format!("order-service {number}").into_bytes()).collect()
    }

    #[test]
    fn a_compressed_frame_is_read_again() {
        let frame = records_alike();
        let stored = compress(frame.clone());
        assert!(stored.len() < frame.len() / 2, "{} of {}", stored.len(), frame.len());
        assert_eq!(*decompress(&stored), frame);
    }

    #[test]
    fn what_stays_as_large_is_stored_as_it_is() {
        let noise: Vec<u8> = (0..2_000).map(|_| rand::random()).collect();
        for frame in [b"small".to_vec(), Vec::new(), noise] {
            assert_eq!(compress(frame.clone()), frame);
            assert_eq!(*decompress(&frame), frame);
        }
    }

    #[test]
    fn damage_gives_other_bytes_and_no_more_than_the_block_can_have() {
        let stored = compress(records_alike());
        for at in 0..stored.len() {
            let mut damaged = stored.clone();
            damaged[at] ^= 0x80;
            let limit = stored.len() * RATIO_MAX;
            assert!(decompress(&damaged).len() <= limit, "byte {at}");
            assert!(decompress(&stored[..at]).len() <= limit, "{at} bytes");
        }
    }
}
