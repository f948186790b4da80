//! Zstandard frames. Java queries the size of a frame's content before reading it, so written
//! frames must contain the size.

use std::io;

use ruzstd::decoding::StreamingDecoder;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

use super::read_all;

/// The header of a frame: magic, descriptor, window.
const HEADER_BYTES: usize = 6;
/// In the descriptor: the size of the content has four bytes.
const SIZE_OF_FOUR_BYTES: u8 = 0b1000_0000;
/// The window size that is always allowed, the least that the format requires of a reader.
const WINDOW_BYTES_MIN: u64 = 8 * 1_024 * 1_024;

pub(super) fn read(body: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    let window = u64::try_from(bytes_max).unwrap_or(u64::MAX).max(WINDOW_BYTES_MIN);
    let decoder =
        StreamingDecoder::new_with_max_window_size(body, window).map_err(io::Error::other)?;
    read_all(decoder, bytes_max)
}

pub(super) fn write(body: &[u8]) -> Vec<u8> {
    let mut frame = compress_to_vec(body, CompressionLevel::Fastest);
    let Ok(size) = u32::try_from(body.len()) else { return frame };
    // The encoder omits the size, and writes exactly these six bytes before its blocks.
    let has_bare_header = frame.get(4).is_some_and(|descriptor| descriptor & 0b1110_0011 == 0);
    if has_bare_header && frame.len() > HEADER_BYTES {
        frame[4] |= SIZE_OF_FOUR_BYTES;
        frame.splice(HEADER_BYTES..HEADER_BYTES, size.to_le_bytes());
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_says_how_large_its_content_is() {
        for body in [&b""[..], b"aa", &b"seata".repeat(100_000)] {
            let frame = write(body);
            assert_eq!(frame[4] >> 6, 2, "a size of four bytes");
            assert_eq!(frame[6..10], u32::try_from(body.len()).unwrap().to_le_bytes());
            assert_eq!(read(&frame, body.len()).unwrap(), body);
        }
    }
}
