//! The settings of a link.

use std::time::Duration;

/// The identity of this process, and its time limits.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The client id in `Hello`: unique per process life.
    pub client_id: String,
    /// The application in `Hello`: the one that the process belongs to.
    pub application: String,
    /// Where the coordinator may be; at least one.
    pub endpoints: Vec<String>,
    /// How long dialling and greeting may take together.
    pub connect_timeout: Duration,
    /// First pause between rounds of attempts.
    pub back_off_base: Duration,
    /// Longest pause between rounds of attempts.
    pub back_off_max: Duration,
    /// How many requests may be unanswered at a time (BOUNDED).
    pub requests_max: usize,
}
