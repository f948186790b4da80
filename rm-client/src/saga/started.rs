//! A saga under way: starting it, asking for its status, signalling and cancelling it.

use std::time::Duration;

use handfast_proto::v1;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tracing::Instrument;

use super::definition::Saga;
use crate::connect::Handfast;
use crate::coordinator::Coordinator;
use crate::error::Error;
use crate::trace;
use crate::xid::Xid;

/// A handle to a saga. The saga goes on whether or not the handle is kept. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StartedSaga {
    coordinator: Coordinator,
    xid: Xid,
}

/// The status of a saga.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SagaStatus {
    /// The saga is going forward.
    Running,
    /// All steps are done.
    Completed,
    /// The saga is being compensated.
    Compensating,
    /// All steps that were done are compensated.
    Compensated,
    /// A step cannot go on, forward or back, without an operator.
    NeedsOperator,
    /// A value that only a later version of the coordinator knows.
    Unknown,
}

/// The state of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SagaStepState {
    /// The step has not begun.
    Waiting,
    /// Its action is due, or its signal is awaited.
    Running,
    /// Like `Running`, and an operator should look at it.
    RunningStuck,
    /// The step is done.
    Done,
    /// Its action refused or was given up.
    Failed,
    /// Its compensation is due.
    Compensating,
    /// Like `Compensating`, and an operator should look at it.
    CompensatingStuck,
    /// The step is compensated.
    Compensated,
    /// A value that only a later version of the coordinator knows.
    Unknown,
}

/// The state of a saga at one moment.
#[derive(Clone, Debug)]
pub struct SagaReport {
    xid: Xid,
    wire: v1::SagaReply,
}

/// The state of one step, as the coordinator reported it.
#[derive(Clone, Copy, Debug)]
pub struct SagaStepReport<'saga> {
    wire: &'saga v1::SagaStepReport,
}

impl Handfast {
    /// Starts a saga. When this returns, the saga is stored and goes on without this process. The
    /// key is the application's own name of the saga, such as an order number. Starting again with
    /// the same key and steps returns the existing saga.
    ///
    /// # Errors
    /// [`Error::Rejected`] if the definition is invalid (`HF-TC-SAGA-INVALID`) or the key belongs
    /// to another saga (`HF-TC-SAGA-MISMATCH`). After [`Error::Unanswered`] start it again.
    pub async fn start_saga(
        &self,
        key: impl Into<String>,
        mut saga: Saga,
    ) -> Result<StartedSaga, Error> {
        let (labels, key) = (saga.take_labels(), key.into());
        let definition = saga.into_wire()?;
        let span = trace::saga(&definition.name, &key);
        let request = v1::StartSagaRequest {
            application: self.application().to_owned(),
            key,
            definition: Some(definition),
            traceparent: String::new(),
            labels,
        };
        let started = self.coordinator().start_saga(request).instrument(span.clone()).await?;
        span.record("xid", &started.xid);
        Ok(self.saga(&Xid::new(&started.xid)?))
    }

    /// Returns the handle of a saga that was started before, by this process or another.
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
    /// [`Error::Rejected`] if the coordinator does not know the saga; another [`Error`] if it
    /// cannot be asked.
    pub async fn report(&self) -> Result<SagaReport, Error> {
        self.get(v1::ReplyWhen::Decided, Duration::ZERO).await
    }

    /// Waits until the saga has ended or needs an operator.
    ///
    /// # Errors
    /// [`Error::Unanswered`] if that takes longer than `timeout`, which says nothing about the
    /// saga; otherwise those of [`report`](Self::report).
    pub async fn ended(&self, timeout: Duration) -> Result<SagaReport, Error> {
        let ended = self.get(v1::ReplyWhen::Finished, timeout);
        let late = |_elapsed| Err(Error::Unanswered { request: "get_saga" });
        tokio::time::timeout(timeout, ended).await.unwrap_or_else(late)
    }

    /// Ends the step that waits for this signal, and makes the payload its output. The step of a
    /// child is named `child/step`. A signal that comes before the step's turn is kept.
    ///
    /// # Errors
    /// [`Error::Rejected`] with `HF-TC-UNKNOWN-SIGNAL` if no step waits for this signal.
    pub async fn signal(&self, step: &str, payload: &impl Serialize) -> Result<SagaReport, Error> {
        let payload = serde_json::to_vec(payload).map_err(|error| Error::Configuration {
            setting: "payload of a signal",
            reason: error.to_string(),
        })?;
        let (xid, signal) = (self.xid.as_str().to_owned(), step.to_owned());
        let request = v1::SignalSagaRequest { xid, signal, payload, ..Default::default() };
        let signalling = self.coordinator.signal_saga(request);
        self.report_of(signalling.instrument(trace::signal(&self.xid, step)).await?)
    }

    /// Cancels the saga, so that it is compensated. Returns when that is decided, not when it is
    /// done.
    ///
    /// # Errors
    /// [`Error::Rejected`] with `HF-TC-PAST-PIVOT` if the saga's pivot has begun.
    pub async fn cancel(&self, reason: &str) -> Result<SagaReport, Error> {
        let (xid, reason) = (self.xid.as_str().to_owned(), reason.to_owned());
        let request = v1::CancelSagaRequest { xid, reason, ..Default::default() };
        let cancelling = self.coordinator.cancel_saga(request);
        self.report_of(cancelling.instrument(trace::cancel(&self.xid)).await?)
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

    /// Returns why the saga is or was compensated, for readers. Empty if it was not.
    #[must_use]
    pub fn cause(&self) -> &str {
        &self.wire.cause
    }

    /// Returns the steps, in the order of the definition, each child before its own steps.
    pub fn steps(&self) -> impl Iterator<Item = SagaStepReport<'_>> {
        self.wire.steps.iter().map(|wire| SagaStepReport { wire })
    }

    /// Returns one step. A step of a child is named after the child, as in `billing/charge`.
    #[must_use]
    pub fn step(&self, name: &str) -> Option<SagaStepReport<'_>> {
        self.steps().find(|step| step.name() == name)
    }
}

impl SagaStepReport<'_> {
    /// Returns the step's name, after the names of the child sagas that contain it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.wire.name
    }

    /// Returns the state.
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

    /// Returns the number of failed attempts of the current action or compensation.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.wire.attempts
    }

    /// Returns why the last attempt failed. Empty if none did.
    #[must_use]
    pub fn error(&self) -> &str {
        &self.wire.error
    }

    /// Returns the output of the step's action or signal.
    ///
    /// # Errors
    /// An error if the output is of another type.
    pub fn output<T: DeserializeOwned>(&self) -> Result<Option<T>, serde_json::Error> {
        self.wire.output.as_deref().map(serde_json::from_slice).transpose()
    }
}
