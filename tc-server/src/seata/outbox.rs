//! What is to be written to one connection.
//!
//! BOUNDED: a client that does not read is cut off when the queue is full.

use handfast_seata_wire::frame::MessageKind;
use handfast_seata_wire::message::Message;
use handfast_seata_wire::{Dialect, Encoding, Family, encode};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc::{Receiver, Sender, channel, error::TrySendError};
use tokio_util::sync::CancellationToken;

use super::request::Question;
use crate::engine::Answered;
use crate::turned_away::{PortName, Why, note};

/// Frames that leave in one write.
const FRAMES_TOGETHER: usize = 256;

/// What nearly every frame has room in.
pub(super) const FRAME_BYTES: usize = 256;

/// What is kept of the space for one write.
const WRITE_BYTES_KEPT: usize = FRAMES_TOGETHER * FRAME_BYTES;

/// How a request is to be answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addressee {
    pub(super) id: i32,
    pub(super) encoding: Encoding,
    pub(super) dialect: Dialect,
}

#[derive(Debug)]
enum Queued {
    Frame(Vec<u8>),
    Reply { to: Addressee, question: Question, answered: Answered },
}

/// The outgoing queue of one connection.
#[derive(Clone, Debug)]
pub(super) struct Outbox {
    queue: Sender<Queued>,
    overfull: CancellationToken,
}

/// Takes the queue's other end.
#[derive(Debug)]
pub(super) struct Outgoing {
    queue: Receiver<Queued>,
}

impl Outbox {
    pub(super) fn new(frames_max: usize) -> (Self, Outgoing) {
        let (sender, receiver) = channel(frames_max.max(1));
        let outbox = Self { queue: sender, overfull: CancellationToken::new() };
        (outbox, Outgoing { queue: receiver })
    }

    /// Queues a frame.
    pub(super) fn put(&self, frame: Vec<u8>) {
        self.enqueue(Queued::Frame(frame));
    }

    /// Queues the answer to a request.
    pub(super) fn answer(&self, to: Addressee, answer: &Message) {
        let mut frame = Vec::with_capacity(FRAME_BYTES);
        append(to, answer, &mut frame);
        if !frame.is_empty() {
            self.put(frame);
        }
    }

    /// Queues what the engine has replied to a request; it is put in words when it leaves.
    pub(super) fn reply(&self, to: Addressee, question: Question, answered: Answered) {
        self.enqueue(Queued::Reply { to, question, answered });
    }

    /// What cannot be delivered is noticed by the connection's end.
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
        let (mut frames, mut bytes) = (Vec::new(), Vec::new());
        loop {
            let taken = tokio::select! {
                biased;
                taken = self.queue.recv_many(&mut frames, FRAMES_TOGETHER) => taken,
                () = finish.cancelled(), if !self.queue.is_closed() => {
                    self.queue.close();
                    continue;
                }
            };
            if taken == 0 {
                return io.shutdown().await;
            }
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
            Self::Reply { to, question, answered } => {
                if let Some(answer) = question.answer(answered, &to.dialect) {
                    append(to, &answer, bytes);
                }
            }
        }
    }
}

fn append(to: Addressee, answer: &Message, bytes: &mut Vec<u8>) {
    let Addressee { id, encoding, dialect } = to;
    if let Err(error) = encode(answer, MessageKind::Answer, id, encoding, &dialect, bytes) {
        let what = format_args!("an answer cannot be written: {}: {error}", error.code());
        note(PortName::Seata, Why::Failed, None, &what);
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::pin::Pin;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    use std::task::{Context, Poll};

    use super::*;

    /// Remembers each write by itself.
    #[derive(Clone, Debug, Default)]
    struct Writes(Arc<Mutex<Vec<Vec<u8>>>>);

    impl AsyncWrite for Writes {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.0.lock().unwrap().push(bytes.to_vec());
            Poll::Ready(Ok(bytes.len()))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// What is written when a client says of which family it is while its writer waits.
    async fn first_writes(family: Family) -> Vec<Vec<u8>> {
        let (outbox, mut outgoing) = Outbox::new(8);
        let (is_known, writes) = (AtomicBool::new(false), Writes::default());
        let told = || if is_known.load(Ordering::Relaxed) { family } else { Family::Java };
        let finish = CancellationToken::new();
        let writing = outgoing.write_all(writes.clone(), told, finish.clone());
        let telling = async {
            tokio::task::yield_now().await;
            is_known.store(true, Ordering::Relaxed);
            outbox.put(b"registered".to_vec());
            outbox.put(b"pong".to_vec());
            finish.cancel();
        };
        let (written, ()) = tokio::join!(writing, telling);
        written.unwrap();
        let writes = writes.0.lock().unwrap();
        writes.clone()
    }

    #[tokio::test]
    async fn frames_leave_together() {
        assert_eq!(first_writes(Family::Java).await, [b"registeredpong".to_vec()]);
    }

    /// Also the first ones.
    #[tokio::test]
    async fn frames_to_seata_go_leave_one_by_one() {
        assert_eq!(first_writes(Family::Go).await, [b"registered".to_vec(), b"pong".to_vec()]);
    }
}
