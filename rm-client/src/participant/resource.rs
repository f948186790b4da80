//! A participant registered with the coordinator.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use handfast_proto::v1;
use tracing::Instrument;

use super::settle::{self, Settler};
use super::vote::Voter;
use super::{Participant, ParticipantError};
use crate::connect::Handfast;
use crate::context;
use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::trace;
use crate::twophase::Swept;
use crate::unknown_outcome::UnknownOutcomeGuard;

/// The longest name, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// The largest input that the coordinator stores for a branch, in bytes.
const INPUT_BYTES_MAX: usize = 64 << 10;

/// A participant to be registered. Created by [`Handfast::participant`].
#[must_use = "nothing is registered before start"]
pub struct NewParticipant<P> {
    coordinator: Coordinator,
    name: String,
    participant: P,
    ask_every: Duration,
    orphan_after: Duration,
}

/// A participant that takes part in global transactions. Cheap to clone.
pub struct ParticipantResource<P> {
    shared: Arc<Shared<P>>,
}

pub(super) struct Shared<P> {
    pub(super) coordinator: Coordinator,
    pub(super) name: String,
    pub(super) participant: P,
    pub(super) settler: Settler,
}

impl Handfast {
    /// Describes a participant of two-phase commit. Any process that has registered the name may be
    /// asked, so all of them must reach the same data.
    ///
    /// ```no_run
    /// # use handfast::participant::Participant;
    /// # async fn example<P: Participant<Input = String>>(
    /// #     handfast: handfast::Handfast,
    /// #     archive: P,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let archive = handfast.participant("archive", archive).start()?;
    /// let store = handfast.transaction("store").can_commit_first();
    /// store.run(async |_tx| archive.join(&"report.pdf".to_owned()).await).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn participant<P: Participant>(
        &self,
        name: impl Into<String>,
        participant: P,
    ) -> NewParticipant<P> {
        NewParticipant {
            coordinator: self.coordinator().clone(),
            name: name.into(),
            participant,
            ask_every: Duration::from_secs(30),
            orphan_after: Duration::from_secs(60),
        }
    }
}

impl<P: Participant> NewParticipant<P> {
    /// Sets how often to ask for the decisions of prepared branches, 30 seconds unless set. Too
    /// short: the participant and the coordinator are queried in vain. Too long: prepared branches
    /// stay locked.
    pub fn ask_every(mut self, every: Duration) -> Self {
        self.ask_every = every.max(Duration::from_millis(1));
        self
    }

    /// Sets for how long the coordinator must not have known a prepared branch before the branch is
    /// rolled back, 60 seconds unless set. Too short: a coordinator that has just lost the lead may
    /// be believed. Too long: the branch stays locked.
    pub fn orphan_after(mut self, age: Duration) -> Self {
        self.orphan_after = age;
        self
    }

    /// Registers the participant. From here on the coordinator asks this process, and this process
    /// asks the coordinator for decisions that it has missed.
    ///
    /// # Errors
    /// [`Error::Configuration`] if the name is empty or longer than 200 bytes.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub fn start(self) -> Result<ParticipantResource<P>, Error> {
        let bytes = self.name.len();
        if bytes == 0 || bytes > NAME_BYTES_MAX {
            let reason = format!("a participant's name has 1 to {NAME_BYTES_MAX} bytes");
            return Err(Error::Configuration { setting: "name", reason });
        }
        let resource = v1::Resource {
            id: self.name.clone(),
            mode: v1::Mode::TwoPhase.into(),
            label: self.name.clone(),
        };
        let shared = Arc::new(Shared {
            coordinator: self.coordinator,
            name: self.name,
            participant: self.participant,
            settler: Settler::new(self.ask_every, self.orphan_after),
        });
        let voter = Arc::new(Voter::new(Arc::clone(&shared)));
        shared.coordinator.register_resource(resource, voter);
        settle::start(&shared);
        Ok(ParticipantResource { shared })
    }
}

impl<P: Participant> ParticipantResource<P> {
    /// Makes the participant part of the ambient global. It is asked when the global is to be
    /// committed. Returns the branch's id.
    ///
    /// # Errors
    /// [`Error::TransactionRequired`] outside a global; [`ParticipantError::Input`] and
    /// [`InputTooLarge`](ParticipantError::InputTooLarge); or the error of the coordinator.
    pub async fn join(&self, input: &P::Input) -> Result<u64, ParticipantError> {
        let context = context::current().ok_or(Error::TransactionRequired)?;
        let application_data = written(input)?;
        let branch_id = (rand::random::<u64>() >> 1).max(1);
        // Before the request: without an answer there may be a branch all the same, whose vote the
        // commit has to wait for.
        context.has_participants.store(true, Ordering::Release);
        let request = v1::RegisterBranchRequest {
            xid: context.xid.as_str().to_owned(),
            branch_id,
            resource_id: self.shared.name.clone(),
            mode: v1::Mode::TwoPhase.into(),
            application_data,
            ..v1::RegisterBranchRequest::default()
        };
        // A request without an answer may have arrived. If the application then joins again, the
        // participant would be asked twice, so the first branch is reported as failed.
        let (coordinator, failed) = (&self.shared.coordinator, v1::PhaseOneOutcome::Failed);
        let mut guard = UnknownOutcomeGuard::new(coordinator, &context.xid, branch_id, failed);
        let name = &self.shared.name;
        let span = trace::branch(&context.xid, branch_id, name, "two-phase", None);
        let registered = coordinator.register_branch(request).instrument(span).await;
        if matches!(registered, Ok(_) | Err(Error::Rejected(_))) {
            guard.disarm();
        }
        registered?;
        Ok(branch_id)
    }

    /// Returns the participant itself.
    #[must_use]
    pub fn participant(&self) -> &P {
        &self.shared.participant
    }

    /// Asks the coordinator for the decisions of all prepared branches, without waiting for the
    /// timer, and executes them.
    ///
    /// # Errors
    /// A [`ParticipantError`] if the participant or the coordinator cannot be asked. Branches that
    /// were settled before that stay settled.
    pub async fn settle(&self) -> Result<Swept, ParticipantError> {
        settle::settle(&self.shared).await
    }
}

fn written(input: &impl serde::Serialize) -> Result<Vec<u8>, ParticipantError> {
    let written = serde_json::to_vec(input)
        .map_err(|error| ParticipantError::Input { reason: error.to_string() })?;
    if written.len() > INPUT_BYTES_MAX {
        let (bytes, bytes_max) = (written.len(), INPUT_BYTES_MAX);
        return Err(ParticipantError::InputTooLarge { bytes, bytes_max });
    }
    Ok(written)
}

impl<P> Clone for ParticipantResource<P> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<P> fmt::Debug for ParticipantResource<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParticipantResource")
            .field("name", &self.shared.name)
            .finish_non_exhaustive()
    }
}

impl<P> fmt::Debug for NewParticipant<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewParticipant").field("name", &self.name).finish_non_exhaustive()
    }
}
