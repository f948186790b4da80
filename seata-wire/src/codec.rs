//! Decodes a frame to its message, and encodes a message to a frame.

use crate::compression::Compression;
use crate::error::WireError;
use crate::frame::{self, Frame, Header, MessageKind, v0};
use crate::limits::Limits;
use crate::message::{Message, Registered};
use crate::serializer::Serializer;
use crate::version::{Dialect, FrameVersion};

/// The encoding of a body. An answer has the encoding of its request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// The serializer.
    pub serializer: Serializer,
    /// The compressor.
    pub compression: Compression,
}

/// A decoded message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedMessage {
    /// The frame's header.
    pub header: Header,
    /// The message.
    pub message: Message,
    /// The encoding for its answer.
    pub encoding: Encoding,
}

impl TryFrom<v0::Frame> for DecodedMessage {
    type Error = WireError;

    /// Converts a frame of version 0.
    ///
    /// # Errors
    ///
    /// The id has more than 31 bits, which clients of that version never reached.
    fn try_from(frame: v0::Frame) -> Result<Self, WireError> {
        let kind = match (&frame.message, frame.is_request) {
            (Message::Ping, _) => MessageKind::Ping,
            (Message::Pong, _) => MessageKind::Pong,
            (_, true) => MessageKind::Request,
            (_, false) => MessageKind::Answer,
        };
        let id = i32::try_from(frame.id)
            .map_err(|_| WireError::DamagedFrame { what: "its id has more than 31 bits" })?;
        let encoding = Encoding::default();
        let (serializer, compressor) = (encoding.serializer.id(), encoding.compression.id());
        let header = Header { version: FrameVersion::V0.byte(), kind, serializer, compressor, id };
        Ok(Self { header, message: frame.message, encoding })
    }
}

/// Reads a frame's message.
///
/// # Errors
///
/// The body cannot be decoded. The frame's bounds are known, so the stream can continue.
pub fn decode(
    frame: &Frame<'_>,
    dialect: &Dialect,
    limits: &Limits,
) -> Result<DecodedMessage, WireError> {
    let header = frame.header;
    let heartbeat = match header.kind {
        MessageKind::Ping => Some(Message::Ping),
        MessageKind::Pong => Some(Message::Pong),
        MessageKind::Request | MessageKind::Answer | MessageKind::OneWay => None,
    };
    if let Some(message) = heartbeat {
        return Ok(DecodedMessage { header, message, encoding: Encoding::default() });
    }
    let (body, compression) =
        Compression::decompress(header.compressor, frame.body, limits.body_bytes_max)?;
    let (message, serializer) = Serializer::read(header.serializer, &body, dialect, limits)?;
    Ok(DecodedMessage { header, message, encoding: Encoding { serializer, compression } })
}

/// Appends the frame of a message. Heartbeats get their own kind instead of `kind`.
///
/// # Errors
///
/// The message has no form in this encoding, or is too large for a frame. Nothing is appended then.
///
/// # Example
///
/// ```
/// use handfast_seata_wire::frame::{MessageKind, Piece, split};
/// use handfast_seata_wire::message::{GlobalBegin, Message};
/// use handfast_seata_wire::{Dialect, Encoding, Limits, decode, encode};
///
/// let (dialect, limits) = (Dialect::default(), Limits::default());
/// let begin = GlobalBegin { timeout_ms: 60_000, name: "place-order".to_owned() };
/// let message = Message::GlobalBegin(begin);
/// let mut bytes = Vec::new();
/// encode(&message, MessageKind::Request, 7, Encoding::default(), &dialect, &mut bytes)?;
///
/// let Piece::Frame(frame, _) = split(&bytes, &limits)? else { panic!("it is whole") };
/// let received = decode(&frame, &dialect, &limits)?;
/// assert_eq!((received.message, received.header.id), (message, 7));
/// # Ok::<(), handfast_seata_wire::WireError>(())
/// ```
pub fn encode(
    message: &Message,
    kind: MessageKind,
    id: i32,
    encoding: Encoding,
    dialect: &Dialect,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    if dialect.frame == FrameVersion::V0 {
        return encode_v0(message, kind, id, out);
    }
    let (kind, body) = match message.kind() {
        Some(_) => (kind, Some(encoding.serializer.write(message, dialect)?)),
        None if *message == Message::Ping => (MessageKind::Ping, None),
        None => (MessageKind::Pong, None),
    };
    let compression = body.as_ref().map_or(Compression::None, |_| encoding.compression.writing());
    let header = Header {
        version: dialect.frame.byte(),
        kind,
        serializer: encoding.serializer.id(),
        compressor: compression.id(),
        id,
    };
    let body = body.map(|body| compression.compress(body)).transpose()?.unwrap_or_default();
    frame::write(&header, &body, out)
}

/// Version 0 has one serializer and no compression.
fn encode_v0(
    message: &Message,
    kind: MessageKind,
    id: i32,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let is_request = match message.kind() {
        Some(_) => matches!(kind, MessageKind::Request | MessageKind::OneWay),
        None => *message == Message::Ping,
    };
    let id = u64::from(id.cast_unsigned());
    v0::write(&v0::Frame { is_request, id, message: message.clone() }, out)
}

/// Appends the answer to a frame whose body cannot be read, in a form that its client shows: as a
/// refused registration, which is the first answer that a client waits for. It is written with the
/// `seata` serializer, which every Java client has.
///
/// # Errors
///
/// The reason is too long for a frame.
pub fn refuse(
    frame: &Frame<'_>,
    server_version: &str,
    reason: &str,
    dialect: &Dialect,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let refused = Registered::refused(server_version, reason);
    // The bytes of a Java object contain the name of its class, unless the serializer numbers
    // classes.
    let is_resource = frame.body.windows(10).any(|name| name == b"RegisterRM");
    let message = match is_resource {
        true => Message::RegisterRmResult(refused),
        false => Message::RegisterTmResult(refused),
    };
    let version = FrameVersion::answering(frame.header.version);
    let dialect = Dialect { frame: version, ..*dialect };
    let id = frame.header.id;
    encode(&message, MessageKind::Answer, id, Encoding::default(), &dialect, out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::{Piece, split};

    #[test]
    fn a_refusal_says_why_in_the_version_that_clients_show() {
        let bytes = [
            0xDA, 0xDA, 1, 0, 0, 0, 26, 0, 16, 0, 22, 0, 0, 0, 0, 1, b'R', b'e', b'g', b'i', b's',
            b't', b'e', b'r', b'R', b'M',
        ];
        let (dialect, limits) = (Dialect::default(), Limits::default());
        let Ok(Piece::Frame(frame, 26)) = split(&bytes, &limits) else { panic!() };
        let error = decode(&frame, &dialect, &limits).unwrap_err();
        let mut answer = Vec::new();
        refuse(&frame, "2.5.0", &error.to_string(), &dialect, &mut answer).unwrap();
        let Ok(Piece::Frame(frame, _)) = split(&answer, &limits) else { panic!() };
        let Message::RegisterRmResult(refused) = decode(&frame, &dialect, &limits).unwrap().message
        else {
            panic!()
        };
        assert!(refused.outcome.is_err());
        assert_eq!(refused.version, "2.5.0 (serializer 22 (HESSIAN) is not supported)");
    }
}
