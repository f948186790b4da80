//! Participants of two-phase commit that are not databases: a file store, a queue, a machine.
//!
//! A component implements [`Participant`] if it can guarantee that it will be able to commit, and
//! keep that guarantee until the decision arrives. When a global is to be committed, the
//! coordinator asks all participants to prepare and then sends them the decision. With
//! [`can_commit_first`](crate::NewTransaction::can_commit_first) it first asks all of them whether
//! they could prepare.
//!
//! A prepared participant never decides alone. If the decision does not arrive, the library asks
//! the coordinator for it, at the start and on a timer, for every branch that
//! [`Participant::prepared`] lists. The participant itself must record its state and keep
//! operations that come twice or too late from taking effect. For data in a database,
//! [`fence`](crate::fence) does this.

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

/// The operations of a participant of two-phase commit.
///
/// If an answer is lost, the coordinator asks again, at this process or another one: each method
/// must do its work once and answer the same the next time. `prepare` and `roll_back` of one branch
/// may run at the same time or in the wrong order. A `prepare` that comes after its `roll_back`
/// must answer [`Vote::No`] and hold nothing.
///
/// `docs/participants.md` shows a complete participant.
pub trait Participant: Send + Sync + 'static {
    /// The input of a branch, as passed to [`join`](ParticipantResource::join). The coordinator
    /// stores it as JSON.
    type Input: Serialize + DeserializeOwned + Send + Sync + 'static;
    /// The error of an attempt that could not answer. The participant is asked again: for a
    /// `prepare` until the global's time is over, for a decision without a limit.
    type Error: fmt::Display + Send;

    /// How long one answer may take, 20 seconds unless set. After that the method is cut off at its
    /// current await and called again, as after a crash. Too short: slow answers never end. Too
    /// long: one that hangs keeps others waiting. A method that takes longer than the coordinator's
    /// `dispatch.answer_timeout_ms` is called again before it has ended.
    const TIME_LIMIT: Duration = Duration::from_secs(20);

    /// Answers whether the branch could prepare. It locks nothing and promises nothing: the answer
    /// saves other participants from preparing in vain.
    fn can_commit(
        &self,
        branch: &Branch<Self::Input>,
    ) -> impl Future<Output = Result<Vote, Self::Error>> + Send {
        let _ = branch;
        future::ready(Ok(Vote::Yes))
    }

    /// Makes sure, durably, that the branch can be committed and can be rolled back, whatever
    /// happens. After [`Vote::No`] it holds nothing.
    fn prepare(
        &self,
        branch: &Branch<Self::Input>,
    ) -> impl Future<Output = Result<Vote, Self::Error>> + Send;

    /// Commits a prepared branch. Returns `Ok` for a branch that is already committed.
    fn commit(
        &self,
        branch: &Branch<Self::Input>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Rolls a branch back. Returns `Ok` for a branch that is already rolled back or was never
    /// prepared.
    fn roll_back(
        &self,
        branch: &Branch<Self::Input>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Lists the branches that are prepared without a decision, from the participant's own records.
    /// The oldest thousand are enough.
    fn prepared(
        &self,
    ) -> impl Future<Output = Result<Vec<Branch<Self::Input>>, Self::Error>> + Send;
}

/// One branch of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Branch<Input> {
    /// The global.
    pub xid: Xid,
    /// The id of the branch within the global.
    pub id: u64,
    /// The input that the branch joined with.
    pub input: Input,
}

/// A participant's vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vote {
    /// The branch could prepare, or it has prepared.
    Yes,
    /// The branch cannot prepare, and holds nothing. The text is for operators, and its first 1,024
    /// bytes are kept.
    No(String),
}
