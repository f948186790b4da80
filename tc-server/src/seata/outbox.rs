//! What is to be written to one connection.
//!
//! BOUNDED: a client that does not read is cut off when the queue is full.

use handfast_seata_wire::Family;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio_util::sync::CancellationToken;

/// Frames that leave in one write.
const FRAMES_TOGETHER: usize = 256;

/// The outgoing queue of one connection.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    queue: Sender<Vec<u8>>,
    overfull: CancellationToken,
}

/// Takes the queue's other end.
#[derive(Debug)]
pub(super) struct Outgoing {
    queue: Receiver<Vec<u8>>,
}

impl Outbox {
    pub(super) fn new(frames_max: usize) -> (Self, Outgoing) {
        let (sender, receiver) = channel(frames_max.max(1));
        let outbox = Self { queue: sender, overfull: CancellationToken::new() };
        (outbox, Outgoing { queue: receiver })
    }

    /// Queues a frame. What cannot be delivered is noticed by the connection's end.
    pub(super) fn put(&self, frame: Vec<u8>) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(frame)
            && !self.overfull.is_cancelled()
        {
            let queued = self.queue.max_capacity();
            tracing::warn!(queued, "a Seata client does not read: cutting it off");
            self.overfull.cancel();
        }
    }

    /// Waits until the client is cut off.
    pub(super) async fn overfull(&self) {
        self.overfull.cancelled().await;
    }
}

impl Outgoing {
    /// Writes what is queued, in as few writes as can be, until `finish`, and then what is left.
    ///
    /// seata-go loses its place in a stream when a read ends in the middle of a frame, so that each
    /// of its frames leaves alone.
    pub(super) async fn write_all(
        &mut self,
        mut io: impl AsyncWrite + Unpin,
        family: impl Fn() -> Family,
        finish: CancellationToken,
    ) -> std::io::Result<()> {
        let mut frames = Vec::new();
        loop {
            let together = match family() {
                Family::Java => FRAMES_TOGETHER,
                Family::Go => 1,
            };
            let taken = tokio::select! {
                biased;
                taken = self.queue.recv_many(&mut frames, together) => taken,
                () = finish.cancelled(), if !self.queue.is_closed() => {
                    self.queue.close();
                    continue;
                }
            };
            if taken == 0 {
                return io.shutdown().await;
            }
            io.write_all(&frames.concat()).await?;
            frames.clear();
        }
    }
}
