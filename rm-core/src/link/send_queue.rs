//! The requests and outcomes that wait to be sent, and how many of them fit one frame.
//!
//! Everything that is queued when the transport is ready goes in one message: system calls and
//! wake-ups are the cost of a request, not bytes. It knows nothing of connections or answers.

use std::collections::{BTreeSet, VecDeque};

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::{BranchOutcome, ClientMessage, PhaseTwoOutcome};
use prost::Message;

use super::error::RequestError;
use super::event::RequestId;
use super::frame::Frame;

/// The API's limit of messages in a frame.
const FRAME_MESSAGES_MAX: usize = 1_024;
/// A frame is closed when it has reached this size, in bytes; the transport's limit is 4 MiB.
const FRAME_BYTES_FULL: usize = 1 << 20;
/// The room that is reserved for each request of a frame, in bytes.
const REQUEST_BYTES_USUAL: usize = 128;
/// The largest request, in bytes, so that a full frame and one request fit the transport.
const REQUEST_BYTES_MAX: usize = 2 << 20;

/// The queues of one link.
#[derive(Debug, Default)]
pub(super) struct SendQueue {
    requests: BTreeSet<RequestId>,
    outcomes: VecDeque<BranchOutcome>,
}

impl SendQueue {
    /// Refuses a request that no frame can carry: sent, it would end the connection, and again
    /// after every reconnect.
    ///
    /// # Errors
    /// [`RequestError::TooLarge`].
    pub(super) fn check_size(request: &Frame) -> Result<(), RequestError> {
        let bytes = request.len();
        if bytes > REQUEST_BYTES_MAX {
            return Err(RequestError::TooLarge { bytes, max: REQUEST_BYTES_MAX });
        }
        Ok(())
    }

    pub(super) fn push_request(&mut self, id: RequestId) {
        self.requests.insert(id);
    }

    pub(super) fn push_outcomes(&mut self, outcomes: Vec<BranchOutcome>) {
        self.outcomes.extend(outcomes);
    }

    pub(super) fn remove_request(&mut self, id: RequestId) {
        self.requests.remove(&id);
    }

    /// Queues these requests for the next connection, in the order of their ids. Unsent outcomes
    /// stay.
    pub(super) fn requeue(&mut self, requests: impl Iterator<Item = RequestId>) {
        self.requests = requests.collect();
    }

    pub(super) fn clear(&mut self) {
        self.requests.clear();
        self.outcomes.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.requests.is_empty() && self.outcomes.is_empty()
    }

    /// Takes as many messages as fit one frame, after `first`; `append` adds a request to the
    /// frame.
    pub(super) fn drain(
        &mut self,
        first: Option<ClientMessage>,
        mut append: impl FnMut(RequestId, &mut Frame),
    ) -> Frame {
        let room = self.requests.len().min(FRAME_MESSAGES_MAX) * REQUEST_BYTES_USUAL;
        let mut frame = Frame::with_capacity(room);
        let mut messages = 0;
        for message in first.into_iter().chain(self.drain_outcomes()) {
            frame.push(&message);
            messages += 1;
        }
        // The size is looked at before a request is added: the largest one still fits the
        // transport.
        while messages < FRAME_MESSAGES_MAX && frame.len() < FRAME_BYTES_FULL {
            let Some(id) = self.requests.pop_first() else { break };
            append(id, &mut frame);
            messages += 1;
        }
        frame
    }

    fn drain_outcomes(&mut self) -> Option<ClientMessage> {
        let (mut branches, mut bytes) = (Vec::new(), 0);
        while branches.len() < FRAME_MESSAGES_MAX && bytes < FRAME_BYTES_FULL {
            let Some(outcome) = self.outcomes.pop_front() else { break };
            bytes += outcome.encoded_len();
            branches.push(outcome);
        }
        if branches.is_empty() {
            return None;
        }
        Some(ClientMessage { id: 0, body: Some(Ask::Finished(PhaseTwoOutcome { branches })) })
    }
}
