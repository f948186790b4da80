//! Compressors of bodies. Reading stops at a limit, so that few bytes cannot take much memory.
//!
//! There is no threshold: a client with a compressor compresses every body. bzip2 is read and not
//! written. A reader uses the compressor named in the frame, so an answer may be uncompressed.
//! Sources: `core/.../compressor/CompressorType.java`, `compressor/seata-compressor-*`.

use std::borrow::Cow;
use std::io::{self, Read};

use bzip2_rs::DecoderReader;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};

use crate::bytes::too_large;
use crate::error::WireError;

mod lz4;
mod zip;
mod zstd;

/// A compressor, with the form of its output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Uncompressed.
    #[default]
    None,
    /// RFC 1952.
    Gzip,
    /// An archive with one entry.
    Zip,
    /// Without its leading `BZ`, as Apache Ant's streams are.
    Bzip2,
    /// LZ4, in one of two forms.
    Lz4(Lz4Form),
    /// RFC 1950.
    Deflater,
    /// RFC 8878.
    Zstd,
}

/// The forms of LZ4, which cannot read each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Lz4Form {
    /// Blocks of the library lz4-java: up to 2.5.
    Blocks,
    /// The standard frame: from 2.6 on.
    Frame,
}

impl Compression {
    /// Returns its number in a frame.
    #[must_use]
    pub fn id(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Gzip => 1,
            Self::Zip => 2,
            Self::Bzip2 => 4,
            Self::Lz4(_) => 5,
            Self::Deflater => 6,
            Self::Zstd => 7,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::None => "uncompressed",
            Self::Gzip => "GZIP",
            Self::Zip => "ZIP",
            Self::Bzip2 => "BZIP2",
            Self::Lz4(_) => "LZ4",
            Self::Deflater => "DEFLATER",
            Self::Zstd => "ZSTD",
        }
    }

    /// Returns the compressor with this number, for this body: the form of LZ4 shows at its start.
    fn of(id: u8, body: &[u8]) -> Result<Self, WireError> {
        match id {
            0 => Ok(Self::None),
            1 => Ok(Self::Gzip),
            2 => Ok(Self::Zip),
            3 => Err(WireError::Compressor { id, name: "SEVENZ" }),
            4 => Ok(Self::Bzip2),
            5 => Ok(Self::Lz4(lz4::form(body))),
            6 => Ok(Self::Deflater),
            7 => Ok(Self::Zstd),
            _ => Err(WireError::Compressor { id, name: "unknown" }),
        }
    }

    /// Returns the compressor for an answer to a body in this one.
    #[must_use]
    pub fn writing(self) -> Self {
        match self {
            Self::Bzip2 => Self::None,
            Self::None | Self::Gzip | Self::Zip | Self::Lz4(_) | Self::Deflater | Self::Zstd => {
                self
            }
        }
    }

    /// Decompresses a body with the compressor of this number. An uncompressed body is not copied.
    pub(crate) fn decompress(
        id: u8,
        body: &[u8],
        bytes_max: usize,
    ) -> Result<(Cow<'_, [u8]>, Self), WireError> {
        let compression = Self::of(id, body)?;
        let read = match compression {
            Self::None => return Ok((within(Cow::Borrowed(body), bytes_max)?, compression)),
            Self::Gzip => read_all(MultiGzDecoder::new(body), bytes_max),
            Self::Zip => zip::read(body, bytes_max),
            Self::Bzip2 => read_all(DecoderReader::new((&b"BZ"[..]).chain(body)), bytes_max),
            Self::Lz4(Lz4Form::Blocks) => lz4::read_blocks(body, bytes_max),
            Self::Lz4(Lz4Form::Frame) => read_all(lz4::frame(body), bytes_max),
            Self::Deflater => read_all(ZlibDecoder::new(body), bytes_max),
            Self::Zstd => zstd::read(body, bytes_max),
        };
        let body = read.map_err(|error| damaged(compression, &error))?;
        Ok((within(Cow::Owned(body), bytes_max)?, compression))
    }

    /// Compresses a body.
    pub(crate) fn compress(self, body: Vec<u8>) -> Result<Vec<u8>, WireError> {
        let level = flate2::Compression::fast();
        let written = match self {
            Self::None | Self::Bzip2 => Ok(body),
            Self::Gzip => write_all(GzEncoder::new(Vec::new(), level), &body, GzEncoder::finish),
            Self::Zip => zip::write(&body),
            Self::Lz4(Lz4Form::Blocks) => Ok(lz4::write_blocks(&body)),
            Self::Lz4(Lz4Form::Frame) => lz4::write_frame(&body),
            Self::Deflater => {
                write_all(ZlibEncoder::new(Vec::new(), level), &body, ZlibEncoder::finish)
            }
            Self::Zstd => Ok(zstd::write(&body)),
        };
        written.map_err(|error| damaged(self, &error))
    }
}

fn damaged(compression: Compression, error: &io::Error) -> WireError {
    WireError::Compressed { name: compression.name(), what: error.to_string() }
}

/// Returns the body, or an error if it is longer than the limit.
fn within(body: Cow<'_, [u8]>, bytes_max: usize) -> Result<Cow<'_, [u8]>, WireError> {
    match body.len() > bytes_max {
        true => Err(too_large("decompressed bytes", body.len(), bytes_max)),
        false => Ok(body),
    }
}

/// Reads to the end, or to one byte more than the limit.
fn read_all(reader: impl Read, bytes_max: usize) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    let bytes = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    reader.take(bytes).read_to_end(&mut body)?;
    Ok(body)
}

fn write_all<W: io::Write>(
    mut encoder: W,
    body: &[u8],
    finish: fn(W) -> io::Result<Vec<u8>>,
) -> io::Result<Vec<u8>> {
    encoder.write_all(body)?;
    finish(encoder)
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITTEN: [Compression; 7] = [
        Compression::None,
        Compression::Gzip,
        Compression::Zip,
        Compression::Lz4(Lz4Form::Blocks),
        Compression::Lz4(Lz4Form::Frame),
        Compression::Deflater,
        Compression::Zstd,
    ];

    #[test]
    fn compressed_bodies_are_read_back() {
        for body in [Vec::new(), b"aa".to_vec(), b"seata".repeat(10_000)] {
            for compression in WRITTEN {
                let written = compression.compress(body.clone()).unwrap();
                let read = Compression::decompress(compression.id(), &written, body.len());
                assert_eq!(read, Ok((Cow::Borrowed(&body[..]), compression)), "{compression:?}");
            }
        }
    }

    #[test]
    fn a_small_body_cannot_grow_above_the_limit() {
        let body = vec![0; 1_000_000];
        for compression in WRITTEN {
            let written = compression.compress(body.clone()).unwrap();
            let refused = Compression::decompress(compression.id(), &written, 999_999);
            let code = refused.unwrap_err().code();
            assert!(code == "HF-SEATA-TOO-LARGE", "{compression:?}: {code}");
        }
    }

    #[test]
    fn a_truncated_body_is_refused() {
        for compression in WRITTEN.into_iter().skip(1) {
            let written = compression.compress((0..=255).collect()).unwrap();
            let half = &written[..written.len() / 2];
            let refused = Compression::decompress(compression.id(), half, 1_000);
            assert!(refused.is_err(), "{compression:?}: {refused:?}");
        }
    }

    #[test]
    fn other_compressors_are_refused() {
        for id in [3, 8, 255] {
            let refused = Compression::decompress(id, b"", 10).unwrap_err();
            assert_eq!(refused.code(), "HF-SEATA-COMPRESSOR");
        }
    }
}
