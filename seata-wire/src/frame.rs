//! Frames of versions 1 and 2: their boundaries in a stream, and their headers.
//!
//! ```text
//!  0       2         3        7      9      10           11           12   16
//!  │ DA DA │ version │ length │ head │ kind │ serializer │ compressor │ id │ head map │ body
//!
//! length: of the whole frame.   head: of the part before the body.
//! ```
//!
//! This module does not decode bodies. Source: `core/.../rpc/netty/v1/ProtocolDecoderV1.java`,
//! `ProtocolEncoderV1.java`, `core/.../protocol/ProtocolConstants.java`.

use crate::bytes::too_large;
use crate::error::WireError;
use crate::limits::Limits;

mod first;
pub mod head_map;
pub mod v0;

pub use first::{FirstBytes, first_bytes};

/// The first bytes of every frame.
pub const MAGIC: [u8; 2] = [0xDA, 0xDA];

/// The bytes before the head map.
pub const HEADER_BYTES: usize = 16;

/// The purpose of a frame. Whether an answer is due depends on the type of the message, never on
/// this.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum MessageKind {
    /// A request.
    Request = 0,
    /// An answer.
    Answer = 1,
    /// A request sent "one-way": clients wait for answers to these as well.
    OneWay = 2,
    /// A heartbeat's request, without a body.
    Ping = 3,
    /// A heartbeat's answer, without a body.
    Pong = 4,
}

impl MessageKind {
    /// Returns its byte in a frame.
    #[must_use]
    pub fn byte(self) -> u8 {
        self as u8
    }

    fn from_byte(byte: u8) -> Option<Self> {
        [Self::Request, Self::Answer, Self::OneWay, Self::Ping, Self::Pong]
            .get(usize::from(byte))
            .copied()
    }
}

/// The fields before the head map, without the lengths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The version byte. It counts in a connection's first frame only.
    pub version: u8,
    /// The purpose of the frame.
    pub kind: MessageKind,
    /// The number of the serializer.
    pub serializer: u8,
    /// The number of the compressor.
    pub compressor: u8,
    /// Chosen by the requester; the answer repeats it.
    pub id: i32,
}

/// A complete frame, borrowed from a stream's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: Header,
    /// Its head map; see [`head_map`].
    pub head_map: &'a [u8],
    /// Its body, still compressed.
    pub body: &'a [u8],
}

/// The next piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// The next frame is incomplete.
    Incomplete,
    /// A frame that takes this many bytes.
    Frame(Frame<'a>, usize),
    /// The header of an answer that its client failed to write, with lengths left over from another
    /// frame. It takes 16 bytes, and the request of this id has no answer.
    HeaderOnly(i32),
}

/// The bytes that a [`Piece::HeaderOnly`] takes.
pub const HEADER_ONLY_BYTES: usize = HEADER_BYTES;

/// Returns the next piece of a stream.
///
/// # Errors
///
/// The stream is unusable, since the start of the next frame is not known: contradicting lengths, a
/// length above a limit, a wrong magic, or an unknown kind. The connection must be closed.
///
/// # Example
///
/// ```
/// use handfast_seata_wire::frame::{MessageKind, Piece, split};
/// use handfast_seata_wire::Limits;
///
/// let ping = [0xDA, 0xDA, 1, 0, 0, 0, 16, 0, 16, 3, 1, 0, 0, 0, 0, 4];
/// let Piece::Frame(frame, 16) = split(&ping, &Limits::default())? else { panic!() };
/// assert_eq!((frame.header.kind, frame.header.id), (MessageKind::Ping, 4));
/// assert_eq!(split(&ping[..15], &Limits::default())?, Piece::Incomplete);
/// # Ok::<(), handfast_seata_wire::WireError>(())
/// ```
pub fn split<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Piece<'a>, WireError> {
    if !bytes.iter().zip(MAGIC).all(|(&byte, magic)| byte == magic) {
        return Err(WireError::DamagedFrame { what: "it does not begin with DA DA" });
    }
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Ok(Piece::Incomplete);
    };
    let &[_, _, version, f0, f1, f2, f3, h0, h1, kind, serializer, compressor, ref id @ ..] = head;
    let kind = MessageKind::from_byte(kind)
        .ok_or(WireError::DamagedFrame { what: "there is no such kind of message" })?;
    let header = Header { version, kind, serializer, compressor, id: i32::from_be_bytes(*id) };
    let whole = u32::from_be_bytes([f0, f1, f2, f3]) as usize;
    let head_length = usize::from(u16::from_be_bytes([h0, h1]));
    if kind == MessageKind::Answer {
        // A header without a body, or directly before the magic of another frame, was left by a
        // failed write. Its lengths must not be trusted: a large one would make it seem incomplete,
        // and it would swallow the frames that follow. A whole answer does not look like this: it
        // always has a body, and neither a head map nor a body begins with the magic, which would
        // be a negative key length or an unknown message type.
        if whole <= HEADER_BYTES || rest.starts_with(&MAGIC) {
            return Ok(Piece::HeaderOnly(header.id));
        }
        if rest.len() < MAGIC.len() {
            return Ok(Piece::Incomplete);
        }
    }
    check_lengths(whole, head_length, limits)?;
    let Some(bytes) = bytes.get(..whole) else { return Ok(Piece::Incomplete) };
    let (head, body) = bytes.split_at(head_length);
    Ok(Piece::Frame(Frame { header, head_map: &head[HEADER_BYTES..], body }, whole))
}

fn check_lengths(whole: usize, head: usize, limits: &Limits) -> Result<(), WireError> {
    if head < HEADER_BYTES {
        return Err(WireError::DamagedFrame { what: "its head is shorter than a header" });
    }
    if whole < head {
        return Err(WireError::DamagedFrame { what: "it is shorter than its head" });
    }
    if whole > limits.frame_bytes_max {
        return Err(too_large("frame bytes", whole, limits.frame_bytes_max));
    }
    let head_map = head - HEADER_BYTES;
    if head_map > limits.head_map_bytes_max {
        return Err(too_large("head map bytes", head_map, limits.head_map_bytes_max));
    }
    Ok(())
}

/// Appends a frame without a head map. None is sent, since seata-go misreads some.
///
/// # Errors
///
/// The body makes the frame longer than a Java peer reads.
pub fn write(header: &Header, body: &[u8], out: &mut Vec<u8>) -> Result<(), WireError> {
    let whole = HEADER_BYTES + body.len();
    let length = u32::try_from(whole).ok().filter(|_| whole <= crate::limits::FRAME_BYTES_MAX);
    let length =
        length.ok_or_else(|| too_large("frame bytes", whole, crate::limits::FRAME_BYTES_MAX))?;
    out.reserve(whole);
    out.extend_from_slice(&MAGIC);
    out.push(header.version);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&[0, 16]);
    out.extend_from_slice(&[header.kind.byte(), header.serializer, header.compressor]);
    out.extend_from_slice(&header.id.to_be_bytes());
    out.extend_from_slice(body);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(kind: u8, whole: u32, head: u16) -> Vec<u8> {
        let mut bytes = vec![0xDA, 0xDA, 1];
        bytes.extend(whole.to_be_bytes());
        bytes.extend(head.to_be_bytes());
        bytes.extend([kind, 1, 0, 0, 0, 0, 2]);
        bytes
    }

    #[test]
    fn lengths_that_contradict_each_other_lose_the_stream() {
        let limits = Limits { frame_bytes_max: 100, head_map_bytes_max: 8, ..Limits::default() };
        for (whole, head, code) in [
            (15, 16, "HF-SEATA-DAMAGED-FRAME"),
            (16, 15, "HF-SEATA-DAMAGED-FRAME"),
            (20, 21, "HF-SEATA-DAMAGED-FRAME"),
            (101, 16, "HF-SEATA-TOO-LARGE"),
            (u32::MAX, 16, "HF-SEATA-TOO-LARGE"),
            (50, 40, "HF-SEATA-TOO-LARGE"),
        ] {
            assert_eq!(split(&header(0, whole, head), &limits).unwrap_err().code(), code);
        }
        assert_eq!(split(b"\xDA\xDB", &limits).unwrap_err().code(), "HF-SEATA-DAMAGED-FRAME");
        assert_eq!(
            split(&header(5, 16, 16), &limits).unwrap_err().code(),
            "HF-SEATA-DAMAGED-FRAME"
        );
    }

    #[test]
    fn an_answer_that_its_client_could_not_write_is_stepped_over() {
        let mut bytes = header(1, 0x42, 16);
        assert_eq!(split(&bytes, &Limits::default()), Ok(Piece::Incomplete));
        bytes.extend(header(2, 0x5c, 16));
        assert_eq!(split(&bytes, &Limits::default()), Ok(Piece::HeaderOnly(2)));
        bytes[9] = 0;
        assert_eq!(split(&bytes, &Limits::default()), Ok(Piece::Incomplete), "a request is none");
        // The lengths of a heartbeat, and zero lengths: there is no body to wait for.
        for (whole, head) in [(16, 16), (0, 0)] {
            let bytes = header(1, whole, head);
            assert_eq!(split(&bytes, &Limits::default()), Ok(Piece::HeaderOnly(2)));
        }
        let mut bytes = header(1, u32::MAX, 16);
        assert_eq!(split(&bytes, &Limits::default()), Ok(Piece::Incomplete), "it may be none");
        bytes.extend([0, 20]);
        assert_eq!(split(&bytes, &Limits::default()).unwrap_err().code(), "HF-SEATA-TOO-LARGE");
    }
}
