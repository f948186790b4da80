//! The settings of the engine.

use std::sync::Arc;

use handfast_core::Limits;

use crate::webhook::Alerts;

/// The settings that the engine is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The address part of the text form of the XIDs begun here; never changes under a global.
    pub address: Arc<str>,
    /// The core's limits.
    pub limits: Limits,
    /// Requests that may wait before the engine. Too low: clients get `HF-TC-BUSY` in bursts
    /// that the engine would have managed; too high: latency grows without a sign.
    pub queue_max: usize,
    /// Requests decided into one batch. Too low: more syncs than needed; too high: the first
    /// requests of a batch wait for the last.
    pub batch_max: usize,
    /// Takes alerts for operators.
    pub alerts: Alerts,
}

impl Settings {
    /// The defaults for an address.
    #[must_use]
    pub fn new(address: impl Into<Arc<str>>) -> Self {
        Self {
            address: address.into(),
            limits: Limits::default(),
            queue_max: 65_536,
            batch_max: 4_096,
            alerts: Alerts::default(),
        }
    }
}
