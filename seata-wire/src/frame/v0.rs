//! Frames of version 0, which clients sent before release 0.7.
//!
//! ```text
//!  0       2       4      6     14
//!  │ DA DA │ flags │ type │ id  │ body, without its type and without a length
//! ```
//!
//! A body ends with its last field, so it must be decoded to find the next frame. Bodies written by
//! Java's Hessian are refused. A frame converts to [`DecodedMessage`](crate::DecodedMessage).
//!
//! Source: `core/.../rpc/netty/v0/ProtocolDecoderV0.java`.

use crate::bytes::{Reader, Writer, too_large};
use crate::error::WireError;
use crate::limits::Limits;
use crate::message::{Message, MessageType};
use crate::seata;
use crate::version::Dialect;

use super::MAGIC;

const REQUEST: u16 = 0x80;
const HEARTBEAT: u16 = 0x20;
const SEATA_CODEC: u16 = 0x10;
const HEADER_BYTES: usize = 14;

/// The longest frame. Each attempt to find its end decodes all of it, so a frame that arrives byte
/// by byte must not be long. Seata Server never reads more than its buffer has either.
const FRAME_BYTES_MAX: usize = 64 * 1_024;

/// A frame of version 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Whether the frame is a request, to which an answer is expected.
    pub is_request: bool,
    /// Chosen by the requester; the answer repeats it.
    pub id: u64,
    /// The message.
    pub message: Message,
}

/// Returns the next frame of a stream, with the number of bytes that it takes, or `None` while it
/// is incomplete.
///
/// # Errors
///
/// The stream is unusable: a wrong magic, a Hessian body, an unknown message, or one that does not
/// end within the limit of a frame.
pub fn split(bytes: &[u8], limits: &Limits) -> Result<Option<(Frame, usize)>, WireError> {
    let Some((head, body)) = bytes.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let &[m0, m1, f0, f1, t0, t1, ref id @ ..] = head;
    if [m0, m1] != MAGIC {
        return Err(WireError::DamagedFrame { what: "it does not begin with DA DA" });
    }
    let flags = u16::from_be_bytes([f0, f1]);
    let (is_request, id) = (flags & REQUEST != 0, u64::from_be_bytes(*id));
    if flags & HEARTBEAT != 0 {
        let message = if is_request { Message::Ping } else { Message::Pong };
        return Ok(Some((Frame { is_request, id, message }, HEADER_BYTES)));
    }
    if flags & SEATA_CODEC == 0 {
        return Err(WireError::Serializer { id: 22, name: "HESSIAN" });
    }
    let kind = MessageType::from_code(i64::from(i16::from_be_bytes([t0, t1])))?;
    let mut reader = Reader::new(body);
    match seata::read_fields(kind, &mut reader, &Dialect::default(), limits) {
        Ok(message) => {
            let taken = HEADER_BYTES + body.len() - reader.remaining();
            Ok(Some((Frame { is_request, id, message }, taken)))
        }
        Err(WireError::Truncated { .. }) => {
            // A frame has no length: a body that ends early may be complete with the next bytes.
            let max = limits.frame_bytes_max.min(FRAME_BYTES_MAX);
            let too_long = || too_large("frame bytes", bytes.len(), max);
            if bytes.len() < max { Ok(None) } else { Err(too_long()) }
        }
        Err(error) => Err(error),
    }
}

/// Appends a frame.
///
/// # Errors
///
/// The `seata` serializer has no form for the message.
pub fn write(frame: &Frame, out: &mut Vec<u8>) -> Result<(), WireError> {
    let direction = if frame.is_request { REQUEST } else { 0 };
    let (flags, code, body) = match frame.message.kind() {
        None => (HEARTBEAT, 0, Vec::new()),
        Some(kind) => {
            let mut body = Writer::default();
            seata::write_fields(&frame.message, &mut body, &Dialect::default())?;
            (SEATA_CODEC, kind.code(), body.into_bytes())
        }
    };
    out.extend(MAGIC);
    out.extend((direction | flags).to_be_bytes());
    out.extend(code.to_be_bytes());
    out.extend(frame.id.to_be_bytes());
    out.extend(body);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::GlobalBegin;

    #[test]
    fn a_frame_ends_where_its_last_field_ends() {
        let begin = GlobalBegin { timeout_ms: 60_000, name: "buy".to_owned() };
        let frame = Frame { is_request: true, id: 7, message: Message::GlobalBegin(begin) };
        let mut bytes = Vec::new();
        write(&frame, &mut bytes).unwrap();
        let length = bytes.len();
        assert_eq!(bytes[..14], [0xDA, 0xDA, 0, 0x90, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7]);
        for end in 0..length {
            assert_eq!(split(&bytes[..end], &Limits::default()), Ok(None));
        }
        bytes.extend([1, 2, 3]);
        assert_eq!(split(&bytes, &Limits::default()), Ok(Some((frame, length))));
    }

    #[test]
    fn a_heartbeat_is_a_header() {
        let ping = Frame { is_request: true, id: 3, message: Message::Ping };
        let mut bytes = Vec::new();
        write(&ping, &mut bytes).unwrap();
        assert_eq!(bytes, [0xDA, 0xDA, 0, 0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3]);
        assert_eq!(split(&bytes, &Limits::default()), Ok(Some((ping, 14))));
    }

    #[test]
    fn a_frame_has_an_end() {
        // A merged request that announces more parts than it has.
        let mut bytes =
            vec![0xDA, 0xDA, 0, 0x90, 0, 59, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0xFF, 0xFF, 0xFF];
        bytes.resize(FRAME_BYTES_MAX, 0);
        let limits = Limits::default();
        assert_eq!(split(&bytes[..FRAME_BYTES_MAX - 1], &limits), Ok(None));
        assert_eq!(split(&bytes, &limits).unwrap_err().code(), "HF-SEATA-TOO-LARGE");
    }

    #[test]
    fn a_hessian_body_is_refused() {
        let bytes = [0xDA, 0xDA, 0, 0x80, 0, 9, 0, 0, 0, 0, 0, 0, 0, 3];
        assert_eq!(split(&bytes, &Limits::default()).unwrap_err().code(), "HF-SEATA-SERIALIZER");
    }
}
