//! Sagas: the work of several services, step by step, driven by the coordinator.
//!
//! The process that starts a saga passes a list of steps ([`Saga`]) to the coordinator and may die
//! after that. The coordinator calls each step at a live process that takes part
//! ([`Handfast::saga_participant`]). If a step refuses, it compensates the steps that were done, in
//! reverse order. Each action and each compensation runs in a local transaction of the
//! participant's own database, behind the [fence](crate::fence), so that it takes effect once
//! however often it is called.
//!
//! This module does not order or repeat steps. That is the coordinator's task.

mod action;
mod definition;
mod participant;
mod settle;
mod started;

pub use self::action::{SagaAction, SagaCall, StepError};
pub use self::definition::{Saga, SagaStep};
pub use self::participant::Participant;
pub use self::settle::SettleError;
pub use self::started::{SagaReport, SagaStatus, SagaStepReport, SagaStepState, StartedSaga};
#[cfg(doc)]
use crate::Handfast;
