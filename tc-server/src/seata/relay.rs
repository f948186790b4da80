//! Carries the bytes of a client to the leader, and the leader's back.
//!
//! BOUNDED: at most one frame of the leader and a buffer of the client's bytes are held. A side
//! that does not read makes the other wait; a client that reads nothing for too long is cut off.

use std::convert::Infallible;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use handfast_seata_wire::Limits;
use handfast_seata_wire::frame::{FirstBytes, HEADER_ONLY_BYTES, Piece, first_bytes, split};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, copy};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::closing::ConnectionEnd;
use super::connection::LAST_WORDS_LIMIT;
use super::reading::READ_BYTES;
use crate::serve::write_timeout::WriteTimeout;

/// Carries bytes both ways until the leader has ended the connection, or `ended` is cancelled.
/// `first` are the client's bytes that have been read already.
pub(super) async fn relay(
    client: impl AsyncRead + AsyncWrite + Unpin,
    first: BytesMut,
    leader: impl AsyncRead + AsyncWrite + Unpin,
    silence_limit: Duration,
    ended: CancellationToken,
) -> ConnectionEnd {
    let is_framed = first_bytes(&first) != FirstBytes::SeataV0;
    let client = WriteTimeout::new(client, silence_limit);
    let (mut from_client, to_client) = tokio::io::split(client);
    let (mut from_leader, mut to_leader) = tokio::io::split(leader);
    let requests = async {
        let ended = carry_requests(first, &mut from_client, &mut to_leader).await;
        // The leader may still answer what it has read.
        sleep(LAST_WORDS_LIMIT).await;
        ended
    };
    let answers = async {
        if is_framed {
            carry_frames(&mut from_leader, to_client).await
        } else {
            carry_answers(&mut from_leader, to_client).await
        }
    };
    tokio::select! {
        ended = requests => ended.unwrap_or_else(ConnectionEnd::Io),
        ended = answers => ended,
        () = ended.cancelled() => ConnectionEnd::Stopping,
    }
}

/// Carries the client's bytes. Where the client has closed its side, so is the one to the leader.
async fn carry_requests(
    first: BytesMut,
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<ConnectionEnd> {
    to.write_all(&first).await?;
    to.flush().await?;
    drop(first);
    copy(from, to).await?;
    to.shutdown().await?;
    Ok(ConnectionEnd::ByClient)
}

/// Carries the leader's frames, each with one write: seata-go loses its position in the stream when
/// a read ends in the middle of a frame.
async fn carry_frames(
    from: &mut (impl AsyncRead + Unpin),
    mut to: impl AsyncWrite + Unpin,
) -> ConnectionEnd {
    let Err(ended) = carry_each_frame(from, &mut to).await;
    finish(&mut to, ended).await
}

async fn carry_each_frame(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> Result<Infallible, ConnectionEnd> {
    // Not those of a configuration: no coordinator writes a longer frame than the protocol has.
    let (limits, mut bytes) = (Limits::default(), BytesMut::new());
    loop {
        let length = match split(&bytes, &limits)? {
            Piece::Frame(_, length) => length,
            Piece::HeaderOnly(_) => HEADER_ONLY_BYTES,
            Piece::Incomplete => {
                bytes.reserve(READ_BYTES);
                match from.read_buf(&mut bytes).await? {
                    0 => return Err(ConnectionEnd::ByLeader),
                    _ => continue,
                }
            }
        };
        to.write_all(&bytes[..length]).await?;
        bytes.advance(length);
    }
}

/// Carries the leader's bytes to a client whose frames have no length.
async fn carry_answers(
    from: &mut (impl AsyncRead + Unpin),
    mut to: impl AsyncWrite + Unpin,
) -> ConnectionEnd {
    let ended = match copy(from, &mut to).await {
        Ok(_bytes) => ConnectionEnd::ByLeader,
        Err(error) => error.into(),
    };
    finish(&mut to, ended).await
}

/// Closes the side to the client, so that it reads what was written and then the end.
async fn finish(to: &mut (impl AsyncWrite + Unpin), ended: ConnectionEnd) -> ConnectionEnd {
    match to.shutdown().await {
        Ok(()) => ended,
        Err(error) => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::recorded_writes::RecordedWrites;
    use super::*;

    const PONG: [u8; 16] = [0xDA, 0xDA, 1, 0, 0, 0, 16, 0, 16, 4, 1, 0, 0, 0, 0, 4];

    /// The network may have put frames together that the leader wrote one by one.
    #[tokio::test]
    async fn frames_of_the_leader_are_written_one_by_one() {
        let (writes, mut arrived) = (RecordedWrites::default(), PONG.repeat(3));
        arrived.truncate(40);
        let ended = carry_frames(&mut &arrived[..], writes.clone()).await;
        assert!(matches!(ended, ConnectionEnd::ByLeader), "{ended}");
        assert_eq!(writes.all(), [PONG, PONG]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_read_is_cut_off() {
        let (client, _reads_nothing) = tokio::io::duplex(16);
        let (leader, mut far) = tokio::io::duplex(1_024);
        far.write_all(&PONG.repeat(8)).await.unwrap();
        let (first, limit) = (BytesMut::from(&PONG[..]), Duration::from_secs(30));
        let ended = relay(client, first, leader, limit, CancellationToken::new()).await;
        assert!(matches!(ended, ConnectionEnd::Io(_)), "{ended}");
    }
}
