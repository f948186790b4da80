//! The number of the last acknowledged batch, in the parts of the directory that do not hold it.
//!
//! A journal file that was restored from an earlier moment looks like one to which nothing was
//! written since. The other parts tell the two apart: each begins with this number, which is
//! written after the batch is durable and before its caller gets the answer. It is not synced with
//! each batch, so a power cut may leave an earlier number, never a later one
//! (`docs/decisions/0018-parts-know-of-each-other.md`).
//!
//! The number is an empty frame, written alternately in two places, so that a power cut spoils at
//! most one of them.

use std::io;

use super::disk::DiskFile;
use super::journal::frame::{self, Seed};

/// The most that a disk writes as a whole or not at all.
const PLACE_BYTES: u64 = 4 << 10;

/// The bytes that it takes at the beginning of a file.
pub(super) const WITNESS_BYTES: u64 = 2 * PLACE_BYTES;

/// Writes the number of a durable batch. The content of the buffer is overwritten.
pub(super) fn write(
    file: &DiskFile,
    number: u64,
    seed: Seed,
    buffer: &mut Vec<u8>,
) -> io::Result<()> {
    frame::encode(&[], number, seed, buffer).ok_or(io::ErrorKind::InvalidData)?;
    file.write_all_at(buffer, number % 2 * PLACE_BYTES)
}

/// Returns the last number written to a file, or `None` if the file does not begin with one.
pub(super) fn read(file: &[u8], seed: Seed) -> Option<u64> {
    let places = file.chunks(usize::try_from(PLACE_BYTES).ok()?).take(2);
    places.filter_map(|place| frame::scan(place, seed).0.first().map(|it| it.number)).max()
}
