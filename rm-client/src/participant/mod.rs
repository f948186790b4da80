//! Participants of two-phase commit that are no databases: a file store, a queue, a machine.
//!
//! Whatever can make sure that it will be able to commit, and hold that until it is told the
//! decision, implements [`Participant`]. The coordinator asks it, when the global is to be
//! committed: with [`can_commit_first`](crate::NewTransaction::can_commit_first) all participants
//! whether they could, then all of them to prepare, and then tells the decision.
//!
//! A participant that has prepared never decides alone. Where the decision does not arrive, the
//! library asks the coordinator for it, at start and on a timer, for everything that
//! [`Participant::prepared`] lists. What a participant writes down, and how it keeps operations
//! that come twice or too late from taking effect, is its own business; [`fence`](crate::fence)
//! does it for those whose data is in a database.

mod error;
mod resource;
mod settle;
mod vote;

use std::fmt;
use std::future;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use error::ParticipantError;
pub use resource::{NewParticipant, ParticipantResource};

use crate::xid::Xid;

/// One part of a global transaction, at one participant.
///
/// The coordinator may ask everything again, of this process or another, whose answer it did not
/// get: each method must do its work once and answer the same the next time. `prepare` and
/// `roll_back` of one branch may run at the same time or in the wrong order; a `prepare` that comes
/// after its `roll_back` must answer [`Vote::No`] and hold nothing.
///
/// `docs/participants.md` has a whole one.
pub trait Participant: Send + Sync + 'static {
    /// What a branch is about, as [`join`](ParticipantResource::join) was given it. Stored by the
    /// coordinator as JSON.
    type Input: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// Why it could not answer this time. It is asked again: a `prepare` until the global's time is
    /// over, a decision for ever.
    type Error: fmt::Display + Send;

    /// How long one answer may take, 20 seconds unless set. Then it is cut off where it waits and
    /// asked for again, as after a crash. Too short: slow ones never end. Too long: one that hangs
    /// keeps others waiting, and longer than the coordinator's `dispatch.answer_timeout_ms` is
    /// asked for again before it has ended.
    const TIME_LIMIT: Duration = Duration::from_secs(20);

    /// Could the branch prepare? Takes and holds nothing, and promises nothing: the answer saves
    /// the others from preparing in vain.
    fn can_commit(
        &self,
        branch: &Branch<Self::Input>,
    ) -> impl Future<Output = Result<Vote, Self::Error>> + Send {
        let _ = branch;
        future::ready(Ok(Vote::Yes))
    }

    /// Makes sure, durably, that the branch can be committed and can be rolled back, whatever
    /// happens. [`Vote::No`] holds nothing.
    fn prepare(
        &self,
        branch: &Branch<Self::Input>,
    ) -> impl Future<Output = Result<Vote, Self::Error>> + Send;

    /// Commits a prepared branch; of one that is committed it is `Ok`.
    fn commit(
        &self,
        branch: &Branch<Self::Input>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Rolls a branch back; of one that is rolled back or was never prepared it is `Ok`.
    fn roll_back(
        &self,
        branch: &Branch<Self::Input>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// What is prepared and has heard no decision, by what this participant itself has written
    /// down; the oldest thousand are enough.
    fn prepared(
        &self,
    ) -> impl Future<Output = Result<Vec<Branch<Self::Input>>, Self::Error>> + Send;
}

/// One branch of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch<Input> {
    /// The global.
    pub xid: Xid,
    /// Which of its branches.
    pub id: u64,
    /// What it is about.
    pub input: Input,
}

/// A participant's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vote {
    /// It could prepare; or it has.
    Yes,
    /// It cannot, and holds nothing. The text is for people; its first 1,024 bytes are kept.
    No(String),
}
