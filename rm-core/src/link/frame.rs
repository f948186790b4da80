//! Messages to the coordinator, encoded once: when a request is made, and not each time it is sent.

use handfast_proto::v1::{ClientFrame, ClientMessage};
use prost::Message;

/// The field number of `ClientFrame.messages`.
const MESSAGES: u32 = 1;

/// A [`ClientFrame`] as it is on the wire. Concatenated frames are one frame with the messages of
/// all of them, as protobuf defines for every repeated field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Frame(Vec<u8>);

impl Frame {
    pub(super) fn with_capacity(bytes: usize) -> Self {
        Self(Vec::with_capacity(bytes))
    }

    /// Encodes one message.
    pub(super) fn of(message: &ClientMessage) -> Self {
        let mut frame =
            Self::with_capacity(prost::encoding::message::encoded_len(MESSAGES, message));
        frame.push(message);
        frame
    }

    pub(super) fn push(&mut self, message: &ClientMessage) {
        prost::encoding::message::encode(MESSAGES, message, &mut self.0);
    }

    pub(super) fn append(&mut self, other: &Self) {
        self.0.extend_from_slice(&other.0);
    }

    /// Returns the size in bytes.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the encoded bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns what was encoded.
    #[must_use]
    pub fn decoded(&self) -> ClientFrame {
        ClientFrame::decode(&*self.0).expect("a frame is what messages were encoded to")
    }
}

#[cfg(test)]
mod tests {
    use handfast_proto::v1::client_message::Body;
    use handfast_proto::v1::{BeginRequest, GetStatusRequest};

    use super::*;

    #[test]
    fn concatenated_frames_are_one_frame() {
        let status = GetStatusRequest { xid: "tc:8091:1".to_owned() };
        let bodies = [Body::Begin(BeginRequest::default()), Body::GetStatus(status)];
        let messages = (7..).zip(bodies).map(|(id, body)| ClientMessage { id, body: Some(body) });
        let messages: Vec<_> = messages.collect();
        let mut frame = Frame::default();
        for message in &messages {
            frame.append(&Frame::of(message));
        }
        let together = ClientFrame { messages };
        assert_eq!(frame.0, together.encode_to_vec());
        assert_eq!(frame.decoded(), together);
    }
}
