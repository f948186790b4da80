//! The queue of frames to be written to one connection.
//!
//! BOUNDED: the connection of a client that does not read is closed when the queue is full.

use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::Message;
use handfast_seata_wire::{Dialect, Encoding, Family, encode};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio_util::sync::CancellationToken;

use super::request::ReplyContext;
use crate::engine::EngineResult;
use crate::turned_away::{PortName, Why, note};

/// The most frames in one write.
const FRAMES_TOGETHER: usize = 256;

/// A size that is enough for nearly every frame.
pub(super) const FRAME_BYTES: usize = 256;

/// The capacity that the buffer keeps after a write.
const WRITE_BYTES_KEPT: usize = FRAMES_TOGETHER * FRAME_BYTES;

/// Where and in which format a request is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyAddress {
    pub(super) id: i32,
    pub(super) encoding: Encoding,
    pub(super) dialect: Dialect,
}

#[derive(Debug)]
enum Queued {
    Frame(Vec<u8>),
    Reply { to: ReplyAddress, context: ReplyContext, answered: EngineResult },
}

/// The sending end of a connection's queue.
#[derive(Clone, Debug)]
pub(super) struct SendQueue {
    queue: Sender<Queued>,
    overfull: CancellationToken,
}

/// The receiving end of a connection's queue, which writes the frames.
#[derive(Debug)]
pub(super) struct FrameWriter {
    queue: Receiver<Queued>,
}

impl SendQueue {
    pub(super) fn new(frames_max: usize) -> (Self, FrameWriter) {
        let (sender, receiver) = channel(frames_max.max(1));
        let send_queue = Self { queue: sender, overfull: CancellationToken::new() };
        (send_queue, FrameWriter { queue: receiver })
    }

    /// Queues a frame.
    pub(super) fn put(&self, frame: Vec<u8>) {
        self.enqueue(Queued::Frame(frame));
    }

    /// Queues the answer to a request.
    pub(super) fn answer(&self, to: ReplyAddress, answer: &Message) {
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        append(to, answer, &mut frame);
        if !frame.is_empty() {
            self.put(frame);
        }
    }

    /// Queues the engine's reply to a request. It is encoded when it is written.
    pub(super) fn reply(&self, to: ReplyAddress, context: ReplyContext, answered: EngineResult) {
        self.enqueue(Queued::Reply { to, context, answered });
    }

    /// Adds to the queue. A frame for a closed connection is dropped: the reading side notices the
    /// end of the connection.
    fn enqueue(&self, queued: Queued) {
        if let Err(TrySendError::Full(_)) = self.queue.try_send(queued)
            && !self.overfull.is_cancelled()
        {
            tracing::debug!(
                queued = self.queue.max_capacity(),
                "a Seata client does not read: cutting it off"
            );
            self.overfull.cancel();
        }
    }

    /// Waits until the queue has overflowed.
    pub(super) async fn overfull(&self) {
        self.overfull.cancelled().await;
    }
}

impl FrameWriter {
    /// Writes queued frames, in as few writes as possible, until `finish` is cancelled, and then
    /// those that are left.
    ///
    /// seata-go loses its position in the stream when a read ends in the middle of a frame, so each
    /// of its frames is written alone.
    pub(super) async fn write_all(
        &mut self,
        mut io: impl AsyncWrite + Unpin,
        family: impl Fn() -> Family,
        finish: CancellationToken,
    ) -> std::io::Result<()> {
        let (mut frames, mut bytes) = (Vec::new(), Vec::new());
        loop {
            let taken = tokio::select! {
                biased;
                taken = self.queue.recv_many(&mut frames, FRAMES_TOGETHER) => taken,
                // A closed queue gives out what it holds, and then ends the loop.
                () = finish.cancelled(), if !self.queue.is_closed() => {
                    self.queue.close();
                    continue;
                }
            };
            if taken == 0 {
                return io.shutdown().await;
            }
            // Looked up after the wait: the registration that shows it may have come meanwhile.
            let apart = family() == Family::Go;
            for frame in frames.drain(..) {
                frame.append_to(&mut bytes);
                if apart {
                    io.write_all(&bytes).await?;
                    bytes.clear();
                }
            }
            io.write_all(&bytes).await?;
            bytes.clear();
            bytes.shrink_to(WRITE_BYTES_KEPT);
        }
    }
}

impl Queued {
    fn append_to(self, bytes: &mut Vec<u8>) {
        match self {
            Self::Frame(frame) => bytes.extend_from_slice(&frame),
            Self::Reply { to, context, answered } => {
                if let Some(answer) = context.answer(answered, &to.dialect) {
                    append(to, &answer, bytes);
                }
            }
        }
    }
}

fn append(to: ReplyAddress, answer: &Message, bytes: &mut Vec<u8>) {
    let ReplyAddress { id, encoding, dialect } = to;
    if let Err(error) = encode(answer, MessageKind::Answer, id, encoding, &dialect, bytes) {
        let what = format_args!("an answer cannot be written: {}: {error}", error.code());
        note(PortName::Seata, Why::Failed, None, &what);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::recorded_writes::RecordedWrites;
    use super::*;

    /// Returns the writes to a client whose family becomes known while its writer waits.
    async fn first_writes(family: Family) -> Vec<Vec<u8>> {
        let (send_queue, mut outgoing) = SendQueue::new(8);
        let (is_known, writes) = (AtomicBool::new(false), RecordedWrites::default());
        let told = || if is_known.load(Ordering::Relaxed) { family } else { Family::Java };
        let finish = CancellationToken::new();
        let writing = outgoing.write_all(writes.clone(), told, finish.clone());
        let telling = async {
            tokio::task::yield_now().await;
            is_known.store(true, Ordering::Relaxed);
            send_queue.put(b"registered".to_vec());
            send_queue.put(b"pong".to_vec());
            finish.cancel();
        };
        let (written, ()) = tokio::join!(writing, telling);
        written.unwrap();
        writes.all()
    }

    #[tokio::test]
    async fn frames_are_written_together() {
        assert_eq!(first_writes(Family::Java).await, [b"registeredpong".to_vec()]);
    }

    /// The first frames too, although the family was unknown when the writer began to wait.
    #[tokio::test]
    async fn frames_to_seata_go_are_written_one_by_one() {
        assert_eq!(first_writes(Family::Go).await, [b"registered".to_vec(), b"pong".to_vec()]);
    }
}
