//! Puts frames on the wire as they were encoded.

use handfast_proto::v1::{ClientFrame, ServerFrame};
use handfast_rm_core::link::Frame;
use prost::bytes::BufMut;
use tonic::Status;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic_prost::{ProstCodec, ProstDecoder};

/// Sends frames as they are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrameCodec;

impl Codec for FrameCodec {
    type Encode = Frame;
    type Decode = ServerFrame;
    type Encoder = Self;
    type Decoder = ProstDecoder<ServerFrame>;

    fn encoder(&mut self) -> Self::Encoder {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<ClientFrame, ServerFrame>::default().decoder()
    }
}

impl Encoder for FrameCodec {
    type Item = Frame;
    type Error = Status;

    fn encode(&mut self, frame: Frame, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put_slice(frame.as_bytes());
        Ok(())
    }
}
