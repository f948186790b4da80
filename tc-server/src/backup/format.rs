//! The frames of a backup.
//!
//! ```text
//! magic (8) · frame of the head · frames of records · frame of the end
//! frame:  kind (1) · length of the body (4) · checksum (8) · body
//! head:   JSON
//! records: length of the key (1) · key · length of the value (4) · value, and again
//! end:    number of records (8)
//! ```
//!
//! All numbers are little-endian. The checksum (XXH3, 64 bits) covers kind, length and body, and
//! its seed is the checksum of the frame before. So a frame that is missing, doubled or moved is
//! noticed like one that has changed, and the last frame vouches for the whole.

use xxhash_rust::xxh3::Xxh3;

/// The first bytes of a backup, with the number of the format at the end.
pub(super) const MAGIC: [u8; 8] = *b"hfbackp1";

pub(super) const HEADER_BYTES: usize = 13;

/// The seed of the first frame's checksum.
pub(super) const FIRST_SEED: u64 = 1;

/// The content of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameKind {
    Head,
    Records,
    End,
}

impl FrameKind {
    pub(super) fn number(self) -> u8 {
        match self {
            Self::Head => 1,
            Self::Records => 2,
            Self::End => 3,
        }
    }

    pub(super) fn of(number: u8) -> Option<Self> {
        [Self::Head, Self::Records, Self::End].into_iter().find(|kind| kind.number() == number)
    }
}

/// Returns the checksum of a frame behind another one.
pub(super) fn checksum(kind: u8, body: &[u8], before: u64) -> u64 {
    let mut hash = Xxh3::with_seed(before);
    hash.update(&[kind]);
    hash.update(&(body.len() as u64).to_le_bytes());
    hash.update(body);
    hash.digest()
}
