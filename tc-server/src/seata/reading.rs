//! Reads bytes of a client, and detects what it speaks.

use bytes::BytesMut;
use handfast_seata_wire::FrameVersion;
use handfast_seata_wire::frame::{FirstBytes, first_bytes};
use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::closing::ConnectionEnd;

/// The least room that one read has in the buffer.
pub(super) const READ_BYTES: usize = 8 * 1_024;

/// Reads until the protocol is known, and returns the version to answer in.
pub(super) async fn detect_version(
    io: &mut (impl AsyncRead + Unpin),
    bytes: &mut BytesMut,
) -> Result<FrameVersion, ConnectionEnd> {
    loop {
        match first_bytes(bytes) {
            FirstBytes::Seata(version) => return Ok(FrameVersion::answering(version)),
            FirstBytes::SeataV0 => return Ok(FrameVersion::V0),
            FirstBytes::Undecided => read_more(io, bytes).await?,
            other @ (FirstBytes::Http1 | FirstBytes::Http2 | FirstBytes::Unknown) => {
                return Err(ConnectionEnd::Protocol(other));
            }
        }
    }
}

/// Reads what has arrived, at least one byte.
pub(super) async fn read_more(
    io: &mut (impl AsyncRead + Unpin),
    bytes: &mut BytesMut,
) -> Result<(), ConnectionEnd> {
    // Without spare capacity a read would take only a few bytes.
    bytes.reserve(READ_BYTES);
    match io.read_buf(bytes).await? {
        0 => Err(ConnectionEnd::ByClient),
        _ => Ok(()),
    }
}
