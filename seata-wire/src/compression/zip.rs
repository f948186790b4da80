//! Archives in the streaming form that Java writes: one deflated entry, followed by its sizes.
//!
//! Reading follows the entries' local headers, as in Java, and concatenates their contents. The
//! directory at the end is written for other readers. Format: PKWARE's APPNOTE, sections 4.3.7 to
//! 4.3.16.

use std::io::{self, Read};

use flate2::Crc;
use flate2::bufread::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::{invalid, read_all, write_all};

const ENTRY: [u8; 4] = *b"PK\x03\x04";
const DESCRIPTOR: [u8; 4] = *b"PK\x07\x08";
const DIRECTORY: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";

const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// The flag for sizes that follow the content.
const SIZES_BEHIND: u16 = 0x08;
const ENCRYPTED: u16 = 0x01;
const VERSION: u16 = 20;
const NAME: &[u8] = b"zip";

/// An entry's header, as far as reading needs it.
struct Entry {
    flags: u16,
    method: u16,
    size: u32,
}

/// Decompresses entries, up to the one that exceeds the limit.
pub(super) fn read(mut body: &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    if !body.starts_with(&ENTRY) {
        return Err(invalid("there is no entry"));
    }
    while body.starts_with(&ENTRY) && out.len() <= bytes_max {
        let entry = read_header(&mut body)?;
        let content = read_content(&entry, &mut body, bytes_max - out.len())?;
        // Content that was cut at the limit is followed by its rest, not by a descriptor.
        let is_whole = out.len() + content.len() <= bytes_max;
        if entry.flags & SIZES_BEHIND != 0 && is_whole {
            read_descriptor(&mut body, &content)?;
        }
        out.extend(content);
    }
    Ok(out)
}

fn read_header(body: &mut &[u8]) -> io::Result<Entry> {
    let mut header = [0; 30];
    body.read_exact(&mut header)?;
    let at = |at: usize| u16::from_le_bytes([header[at], header[at + 1]]);
    let entry =
        Entry { flags: at(6), method: at(8), size: u32::from(at(18)) | u32::from(at(20)) << 16 };
    let names = usize::from(at(26)) + usize::from(at(28));
    *body = body.get(names..).ok_or_else(|| invalid("an entry's name is cut off"))?;
    match entry.flags & ENCRYPTED {
        0 => Ok(entry),
        _ => Err(invalid("an entry is encrypted")),
    }
}

fn read_content(entry: &Entry, body: &mut &[u8], bytes_max: usize) -> io::Result<Vec<u8>> {
    match entry.method {
        DEFLATED => {
            let mut decoder = DeflateDecoder::new(*body);
            let content = read_all(&mut decoder, bytes_max)?;
            *body = decoder.into_inner();
            Ok(content)
        }
        // Stored content shows no end of its own, so its size must come first.
        STORED if entry.flags & SIZES_BEHIND == 0 => {
            let (content, rest) = body
                .split_at_checked(entry.size as usize)
                .ok_or_else(|| invalid("an entry is cut off"))?;
            *body = rest;
            read_all(content, bytes_max)
        }
        _ => Err(invalid("an entry's method is not known")),
    }
}

/// The checksum and sizes behind the content, with or without their own magic.
fn read_descriptor(body: &mut &[u8], content: &[u8]) -> io::Result<()> {
    *body = body.strip_prefix(&DESCRIPTOR).unwrap_or(body);
    let mut descriptor = [0; 12];
    body.read_exact(&mut descriptor)?;
    match descriptor.starts_with(&checksum(content)) {
        true => Ok(()),
        false => Err(invalid("an entry's checksum is wrong")),
    }
}

fn checksum(content: &[u8]) -> [u8; 4] {
    let mut crc = Crc::new();
    crc.update(content);
    crc.sum().to_le_bytes()
}

pub(super) fn write(body: &[u8]) -> io::Result<Vec<u8>> {
    let encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
    let deflated = write_all(encoder, body, DeflateEncoder::finish)?;
    let mut sums = checksum(body).to_vec();
    for size in [deflated.len(), body.len()] {
        let size = u32::try_from(size).map_err(|_| invalid("the body is above 4 GiB"))?;
        sums.extend(size.to_le_bytes());
    }
    let mut out = ENTRY.to_vec();
    put(&mut out, &[VERSION, SIZES_BEHIND, DEFLATED, 0, 0]);
    out.extend([0; 12]);
    put(&mut out, &[3, 0]);
    out.extend(NAME);
    out.extend(deflated);
    out.extend(DESCRIPTOR);
    out.extend(&sums);
    write_directory(&mut out, &sums)?;
    Ok(out)
}

fn write_directory(out: &mut Vec<u8>, sums: &[u8]) -> io::Result<()> {
    let offset = u32::try_from(out.len()).map_err(|_| invalid("the body is above 4 GiB"))?;
    let start = out.len();
    out.extend(DIRECTORY);
    put(out, &[VERSION, VERSION, SIZES_BEHIND, DEFLATED, 0, 0]);
    out.extend(sums);
    put(out, &[3, 0, 0, 0, 0]);
    out.extend([0; 8]);
    out.extend(NAME);
    let length = u32::try_from(out.len() - start).expect("a directory of one entry is short");
    out.extend(END);
    put(out, &[0, 0, 1, 1]);
    out.extend(length.to_le_bytes());
    out.extend(offset.to_le_bytes());
    put(out, &[0]);
    Ok(())
}

fn put(out: &mut Vec<u8>, numbers: &[u16]) {
    out.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
}
