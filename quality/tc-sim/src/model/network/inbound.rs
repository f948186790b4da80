//! The frames that have arrived at the coordinator's end of a connection, in order.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use futures::stream::Stream;
use handfast_proto::v1::ClientFrame;
use tonic::Status;

/// A frame or an error; `None` is the end of the stream.
type Received = Option<Result<ClientFrame, Status>>;

/// Frames that have arrived and are not read yet.
#[derive(Debug, Default)]
pub(super) struct InboundQueue {
    state: Mutex<(VecDeque<Received>, Option<Waker>)>,
}

impl InboundQueue {
    pub(super) fn push(&self, received: Received) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.push_back(received);
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The stream that the front end reads.
#[derive(Debug)]
pub(super) struct InboundStream {
    queue: Arc<InboundQueue>,
}

impl InboundStream {
    pub(super) fn of(queue: &Arc<InboundQueue>) -> Self {
        Self { queue: Arc::clone(queue) }
    }
}

impl Stream for InboundStream {
    type Item = Result<ClientFrame, Status>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Received> {
        let mut state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        match state.0.pop_front() {
            Some(received) => Poll::Ready(received),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
