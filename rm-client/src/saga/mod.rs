//! Sagas: work of several services, step by step, driven by the coordinator.
//!
//! Whoever starts a saga hands the coordinator a list of steps ([`Saga`]) and may die after that:
//! the coordinator calls each step at a live process that takes part
//! ([`Handfast::saga_participant`]), and takes back what was done, in the reverse order, when a
//! step refuses. Each action and each compensation runs in a local transaction of the participant's
//! own database, behind the [fence](crate::fence), so that it takes effect once however often it is
//! called.
//!
//! It does not order or repeat anything: that is the coordinator's.

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
