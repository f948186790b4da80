//! A saga under way: starting it, asking how it stands, signals, and changing one's mind.

use std::time::Duration;

use handfast_proto::v1;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::definition::Saga;
use crate::connect::Handfast;
use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::xid::Xid;

/// A handle to a saga, which goes on whether or not it is kept. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StartedSaga {
    coordinator: Coordinator,
    xid: Xid,
}

/// How a saga stands in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SagaStatus {
    /// Going forward.
    Running,
    /// Every step is done.
    Completed,
    /// Going back.
    Compensating,
    /// Everything is taken back.
    Compensated,
    /// A step cannot go on, in its direction, without a person.
    NeedsOperator,
    /// Something that a later coordinator knows.
    Unknown,
}

/// How a step stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SagaStepState {
    /// Not begun.
    Waiting,
    /// Its action is due, or its signal awaited.
    Running,
    /// As running, and a person should look.
    RunningStuck,
    /// Done.
    Done,
    /// Its action refused or was given up.
    Failed,
    /// Its compensation is due.
    Compensating,
    /// As compensating, and a person should look.
    CompensatingStuck,
    /// Taken back.
    Compensated,
    /// Something that a later coordinator knows.
    Unknown,
}

/// How a saga stands.
#[derive(Clone, Debug)]
pub struct SagaReport {
    xid: Xid,
    wire: v1::SagaReply,
}

/// How one step of it stands.
#[derive(Clone, Copy, Debug)]
pub struct SagaStepReport<'saga> {
    wire: &'saga v1::SagaStepReport,
}

impl Handfast {
    /// Starts a saga; when this returns it is stored, and goes on without this process. The key is
    /// the application's name of this piece of business, such as an order number: started again
    /// with the same key and steps, the saga is found as it is.
    ///
    /// # Errors
    /// [`Error::Rejected`] if the saga could not be carried out (`HF-TC-SAGA-INVALID`) or the key
    /// belongs to another one (`HF-TC-SAGA-MISMATCH`). After [`Error::Unanswered`] start it again.
    pub async fn start_saga(
        &self,
        key: impl Into<String>,
        saga: Saga,
    ) -> Result<StartedSaga, Error> {
        let request = v1::StartSagaRequest {
            application: self.application().to_owned(),
            key: key.into(),
            definition: Some(saga.into_wire()?),
        };
        let reply = self.coordinator().start_saga(request).await?;
        Ok(self.saga(&Xid::new(&reply.xid)?))
    }

    /// The handle of a saga that was started before, here or elsewhere.
    #[must_use]
    pub fn saga(&self, xid: &Xid) -> StartedSaga {
        StartedSaga { coordinator: self.coordinator().clone(), xid: xid.clone() }
    }
}

impl StartedSaga {
    /// The saga's XID.
    #[must_use]
    pub fn xid(&self) -> &Xid {
        &self.xid
    }

    /// How the saga stands.
    ///
    /// # Errors
    /// [`Error::Rejected`] if the coordinator does not know it, or when it cannot be asked.
    pub async fn report(&self) -> Result<SagaReport, Error> {
        self.get(v1::ReplyWhen::Decided, Duration::ZERO).await
    }

    /// Waits until the saga has ended, or needs an operator.
    ///
    /// # Errors
    /// [`Error::Unanswered`] if that takes longer than `patience`, which says nothing about the
    /// saga; otherwise as [`report`](Self::report).
    pub async fn ended(&self, patience: Duration) -> Result<SagaReport, Error> {
        let ended = self.get(v1::ReplyWhen::Finished, patience);
        let late = |_elapsed| Err(Error::Unanswered { request: "get_saga" });
        tokio::time::timeout(patience, ended).await.unwrap_or_else(late)
    }

    /// Ends the step that waits for this signal (of a child: `child/step`), and makes the payload
    /// its output. One that comes before the step's turn is kept.
    ///
    /// # Errors
    /// [`Error::Rejected`] with `HF-TC-UNKNOWN-SIGNAL` if no step waits for it.
    pub async fn signal(&self, step: &str, payload: &impl Serialize) -> Result<SagaReport, Error> {
        let payload = serde_json::to_vec(payload).map_err(|error| Error::Configuration {
            setting: "payload of a signal",
            reason: error.to_string(),
        })?;
        let (xid, signal) = (self.xid.as_str().to_owned(), step.to_owned());
        let request = v1::SignalSagaRequest { xid, signal, payload };
        self.report_of(self.coordinator.signal_saga(request).await?)
    }

    /// Has the saga taken back. Returns when that is decided, not when it is done.
    ///
    /// # Errors
    /// [`Error::Rejected`] with `HF-TC-PAST-PIVOT` if its pivot has begun.
    pub async fn cancel(&self, reason: &str) -> Result<SagaReport, Error> {
        let (xid, reason) = (self.xid.as_str().to_owned(), reason.to_owned());
        let request = v1::CancelSagaRequest { xid, reason };
        self.report_of(self.coordinator.cancel_saga(request).await?)
    }

    async fn get(&self, when: v1::ReplyWhen, wait: Duration) -> Result<SagaReport, Error> {
        let xid = self.xid.as_str().to_owned();
        let request = v1::GetSagaRequest { xid, reply_when: when.into() };
        self.report_of(self.coordinator.get_saga(request, wait).await?)
    }

    fn report_of(&self, wire: v1::SagaReply) -> Result<SagaReport, Error> {
        Ok(SagaReport { xid: self.xid.clone(), wire })
    }
}

impl SagaReport {
    /// The saga's XID.
    #[must_use]
    pub fn xid(&self) -> &Xid {
        &self.xid
    }

    /// How the saga stands.
    #[must_use]
    pub fn status(&self) -> SagaStatus {
        match self.wire.status() {
            v1::SagaStatus::Running => SagaStatus::Running,
            v1::SagaStatus::Completed => SagaStatus::Completed,
            v1::SagaStatus::Compensating => SagaStatus::Compensating,
            v1::SagaStatus::Compensated => SagaStatus::Compensated,
            v1::SagaStatus::NeedsOperator => SagaStatus::NeedsOperator,
            v1::SagaStatus::Unspecified => SagaStatus::Unknown,
        }
    }

    /// Why the saga is or was taken back, for people; empty if it was not.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.wire.cause
    }

    /// The steps, in the order of the definition: a child before its own.
    pub fn steps(&self) -> impl Iterator<Item = SagaStepReport<'_>> {
        self.wire.steps.iter().map(|wire| SagaStepReport { wire })
    }

    /// One step; one of a child behind the child's name, as in `billing/charge`.
    #[must_use]
    pub fn step(&self, name: &str) -> Option<SagaStepReport<'_>> {
        self.steps().find(|step| step.name() == name)
    }
}

impl SagaStepReport<'_> {
    /// The step's name, behind those of the children that it is in.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.wire.name
    }

    /// How it stands.
    #[must_use]
    pub fn state(&self) -> SagaStepState {
        match self.wire.state() {
            v1::SagaStepState::Waiting => SagaStepState::Waiting,
            v1::SagaStepState::Running => SagaStepState::Running,
            v1::SagaStepState::RunningStuck => SagaStepState::RunningStuck,
            v1::SagaStepState::Done => SagaStepState::Done,
            v1::SagaStepState::Failed => SagaStepState::Failed,
            v1::SagaStepState::Compensating => SagaStepState::Compensating,
            v1::SagaStepState::CompensatingStuck => SagaStepState::CompensatingStuck,
            v1::SagaStepState::Compensated => SagaStepState::Compensated,
            v1::SagaStepState::Unspecified => SagaStepState::Unknown,
        }
    }

    /// Failed attempts of what it is asked for.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.wire.attempts
    }

    /// Why the last of them failed; empty if none did.
    #[must_use]
    pub fn error(&self) -> &str {
        &self.wire.error
    }

    /// What its action, or its signal, gave.
    ///
    /// # Errors
    /// When it is of another type.
    pub fn output<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        self.wire.output.as_deref().map(serde_json::from_slice).transpose()
    }
}
