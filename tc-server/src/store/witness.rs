//! The number of the last acknowledged batch, in the parts of the directory that do not hold it.
//!
//! A journal file that was put back from an earlier moment looks as one to which nothing was
//! written since. What tells them apart is in the other parts: each begins with this number, which
//! is written when the batch is durable and before its caller is told. It is not synced with each
//! batch, so that a power cut may leave an earlier one, never a later one
//! (`docs/decisions/0015-parts-know-of-each-other.md`).
//!
//! It is an empty frame, in two places in turns: what a power cut spoils is one of them at most.

use std::io;

use super::disk::DiskFile;
use super::journal::frame::{self, Seed};

/// What a disk may write whole or not at all.
const PLACE_BYTES: u64 = 4 << 10;

/// How much of a file it takes.
pub(super) const WITNESS_BYTES: u64 = 2 * PLACE_BYTES;

/// Writes the number of a batch that is durable. The buffer is free to use.
pub(super) fn write(
    file: &DiskFile,
    number: u64,
    seed: Seed,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    frame::encode(&[], number, seed, buffer).ok_or(io::ErrorKind::InvalidData)?;
    file.write_all_at(buffer, number % 2 * PLACE_BYTES)
}

/// The last number that was written to a file; `None` for one that does not begin with any.
pub(super) fn read(file: &[u8], seed: Seed) -> Option<u64> {
    let places = file.chunks(usize::try_from(PLACE_BYTES).ok()?).take(2);
    places.filter_map(|place| frame::scan(place, seed).0.first().map(|it| it.number)).max()
}
