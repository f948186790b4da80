//! LZ4 in its two forms.
//!
//! ```text
//! block:  "LZ4Block" │ method and level │ compressed length │ length │ checksum │ bytes
//! ```
//!
//! Numbers are little-endian; the last block has no bytes. The library lz4-java defines this form
//! in `LZ4BlockOutputStream.java`.

use std::hash::Hasher;
use std::io::{self, Write};

use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};
use lz4_flex::frame::{BlockMode, FrameDecoder, FrameEncoder, FrameInfo};
use twox_hash::XxHash32;

use super::{Lz4Form, invalid};

const MAGIC: &[u8; 8] = b"LZ4Block";
const STORED: u8 = 0x10;
const COMPRESSED: u8 = 0x20;
const CHECKSUM_SEED: u32 = 0x9747_B28C;
/// lz4-java keeps 28 bits of the checksum.
const CHECKSUM_BITS: u32 = 0x0FFF_FFFF;
/// The block size of Seata's clients, level 0 in the token.
const BLOCK_BYTES: usize = 1_024;

pub(super) fn form(body: &[u8]) -> Lz4Form {
    if body.starts_with(MAGIC) { Lz4Form::Blocks } else { Lz4Form::Frame }
}

pub(super) fn frame(body: &[u8]) -> FrameDecoder<&[u8]> {
    FrameDecoder::new(body)
}

pub(super) fn write_frame(body: &[u8]) -> io::Result<Vec<u8>> {
    let settings = FrameInfo::new().block_mode(BlockMode::Independent);
    let mut encoder = FrameEncoder::with_frame_info(settings, Vec::new());
    encoder.write_all(body)?;
    encoder.finish().map_err(io::Error::other)
}

/// Decompresses blocks, up to the one that exceeds the limit.
pub(super) fn read_blocks(mut body: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let rest = body.strip_prefix(MAGIC).ok_or_else(|| invalid("a block has no magic"))?;
        let (&[token, ref lengths @ ..], rest) =
            rest.split_first_chunk::<13>().ok_or_else(|| invalid("a block's header is cut off"))?;
        let [compressed, length, checksum] = numbers(lengths);
        if token & 0xF0 == STORED && length == 0 {
            return Ok(out);
        }
        // Checked before room is made: the length is the peer's word (BOUNDED).
        if out.len().saturating_add(length as usize) > bytes_max {
            // One byte more than the limit is enough to detect the excess.
            out.resize(bytes_max + 1, 0);
            return Ok(out);
        }
        let (content, rest) = rest
            .split_at_checked(compressed as usize)
            .ok_or_else(|| invalid("a block is cut off"))?;
        let start = out.len();
        match token & 0xF0 {
            STORED => out.extend_from_slice(content),
            COMPRESSED => {
                out.resize(start + length as usize, 0);
                let written = decompress_into(content, &mut out[start..]);
                out.truncate(start + written.map_err(io::Error::other)?);
            }
            _ => return Err(invalid("a block's method is not known")),
        }
        if out.len() - start != length as usize {
            return Err(invalid("a block has another length than it says"));
        }
        if hash(&out[start..]) != checksum {
            return Err(invalid("a block's checksum is wrong"));
        }
        body = rest;
    }
}

fn numbers(bytes: &[u8; 12]) -> [u32; 3] {
    let &[a, b, c, d, e, f, g, h, i, j, k, l] = bytes;
    [[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_le_bytes)
}

pub(super) fn write_blocks(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len() + 2 * 21);
    let mut compressed = vec![0; get_maximum_output_size(BLOCK_BYTES)];
    for block in body.chunks(BLOCK_BYTES) {
        let checksum = hash(block);
        match compress_into(block, &mut compressed) {
            Ok(length) if length < block.len() => {
                push_block(&mut out, COMPRESSED, &compressed[..length], block.len(), checksum);
            }
            Ok(_) | Err(_) => push_block(&mut out, STORED, block, block.len(), checksum),
        }
    }
    push_block(&mut out, STORED, &[], 0, 0);
    out
}

fn push_block(out: &mut Vec<u8>, method: u8, content: &[u8], length: usize, checksum: u32) {
    let number = |length: usize| {
        u32::try_from(length).expect("a block is never longer than BLOCK_BYTES").to_le_bytes()
    };
    out.extend_from_slice(MAGIC);
    out.push(method);
    out.extend(number(content.len()));
    out.extend(number(length));
    out.extend(checksum.to_le_bytes());
    out.extend_from_slice(content);
}

fn hash(block: &[u8]) -> u32 {
    let mut hasher = XxHash32::with_seed(CHECKSUM_SEED);
    hasher.write(block);
    hasher.finish_32() & CHECKSUM_BITS
}
