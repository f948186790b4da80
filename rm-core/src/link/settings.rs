//! What the link is told once.

use std::time::Duration;

/// Who this process is and how patient it is.
#[derive(Clone, Debug)]
pub struct Settings {
    /// What is said in `Hello`: unique per process life.
    pub client_id: String,
    /// What is said in `Hello`: the application that the process belongs to.
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
