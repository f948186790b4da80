//! Reports to the coordinator what a relay sees in its outbox, and carries out what operators ask.
//!
//! It runs beside the relay and shares nothing with it but the pool, of which it takes a connection
//! only if one is to be had at once. The more time the outbox takes to be read, the more seldom it
//! is read. While no coordinator answers, the relay goes on as it does without one.

use std::convert::Infallible;
use std::time::Duration;

use handfast_proto::v1;
use sqlx::Pool;
use sqlx::pool::PoolConnection;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::super::error::OutboxError;
use super::super::event::EventId;
use super::super::operate::{requeue_on, skip_on};
use super::survey::{Survey, survey};
use crate::at::AtDatabase;
use crate::connect::Handfast;
use crate::error::Error;

/// How often the outbox is read, unless that takes long.
const EVERY: Duration = Duration::from_secs(2);
/// The pause after reading the outbox, in times of what that has taken.
const PAUSE_TIMES: u32 = 20;
/// The longest pause, after which the coordinator takes a relay for silent.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long reading the outbox, or one action, may take.
const DATABASE_MAX: Duration = Duration::from_secs(15);
/// The pause after a report that no coordinator has answered.
const UNANSWERED_PAUSE: Duration = Duration::from_secs(5);
/// How long the last report may take, with which a relay that stops takes its leave.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// The coordinator that a relay reports to.
#[derive(Clone, Debug)]
pub(super) struct Reporting {
    pub(super) handfast: Handfast,
    /// The name of the outbox.
    pub(super) outbox: String,
}

/// The reports of one relay.
pub(super) struct Reporter<DB: AtDatabase> {
    pub(super) pool: Pool<DB>,
    pub(super) reporting: Reporting,
    /// The relay's name.
    pub(super) relay: String,
}

impl<DB: AtDatabase> Reporter<DB> {
    /// Reports again and again, until it is dropped.
    pub(super) async fn run(&self) -> Infallible {
        let (mut results, mut is_answered) = (Vec::new(), true);
        loop {
            let began = Instant::now();
            let (survey, error) = match self.look().await {
                Ok(survey) => (survey, String::new()),
                Err(error) => (Survey::default(), error),
            };
            let pause = (began.elapsed() * PAUSE_TIMES).clamp(EVERY, PAUSE_MAX);
            let request = v1::ReportOutboxRequest {
                lanes: survey.lanes,
                parked: survey.parked,
                error,
                results: std::mem::take(&mut results),
                wait_ms: u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                ..self.request()
            };
            match self.reporting.handfast.coordinator().report_outbox(request).await {
                Ok(reply) if reply.actions.is_empty() => {
                    is_answered = true;
                    // An answer that was not kept back.
                    sleep_until(began + pause).await;
                }
                Ok(reply) => results = self.carry_out(reply.actions).await,
                Err(error) => {
                    if std::mem::replace(&mut is_answered, false) {
                        tracing::warn!(%error, code = error.code(), "the relay cannot report");
                    }
                    sleep(unanswered_pause(&error)).await;
                }
            }
        }
    }

    /// Takes the relay's leave.
    pub(super) async fn leave(&self) {
        let request = v1::ReportOutboxRequest { leaves: true, ..self.request() };
        let leaving = self.reporting.handfast.coordinator().report_outbox(request);
        match timeout(LEAVE_MAX, leaving).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::debug!(%error, "the relay's leave is not taken"),
            Err(_elapsed) => tracing::debug!("no answer to the relay's leave"),
        }
    }

    fn request(&self) -> v1::ReportOutboxRequest {
        v1::ReportOutboxRequest {
            outbox: self.reporting.outbox.clone(),
            relay: self.relay.clone(),
            ..v1::ReportOutboxRequest::default()
        }
    }

    async fn look(&self) -> Result<Survey, String> {
        let looking = async {
            let mut connection = self.connection().await?;
            survey::<DB>(&mut connection, &self.relay).await.map_err(|error| error.to_string())
        };
        timeout(DATABASE_MAX, looking).await.unwrap_or_else(|_elapsed| Err(no_answer()))
    }

    async fn carry_out(&self, actions: Vec<v1::OutboxAction>) -> Vec<v1::OutboxActionResult> {
        let mut results = Vec::new();
        for action in actions {
            let done = timeout(DATABASE_MAX, self.act(&action)).await;
            let done =
                done.unwrap_or_else(|_elapsed| Err(refusal("HF-OUTBOX-DATABASE", no_answer())));
            let result = done.err().unwrap_or_default();
            tracing::info!(
                event = action.event, verb = ?action.verb(), code = result.code,
                "an operator's action"
            );
            results.push(v1::OutboxActionResult { id: action.id, ..result });
        }
        results
    }

    /// Carries an action out. An error is a result without its number.
    async fn act(&self, action: &v1::OutboxAction) -> Result<(), v1::OutboxActionResult> {
        let of_outbox = |error: OutboxError| refusal(error.code(), error.to_string());
        let event: EventId = action.event.parse().map_err(of_outbox)?;
        let connection = self.connection().await;
        let mut connection = connection.map_err(|error| refusal("HF-OUTBOX-DATABASE", error))?;
        match action.verb() {
            v1::OutboxVerb::Requeue => requeue_on::<DB>(&mut connection, event).await,
            v1::OutboxVerb::Skip => skip_on::<DB>(&mut connection, event).await,
            v1::OutboxVerb::Unspecified => {
                let text = "this relay does not know the action: it is of an earlier version";
                return Err(refusal("HF-OUTBOX-MALFORMED", text.to_owned()));
            }
        }
        .map_err(of_outbox)
    }

    /// Returns a connection that the relay and its notifications do not need.
    async fn connection(&self) -> Result<PoolConnection<DB>, String> {
        let pool = &self.pool;
        let has_room = pool.num_idle() > 0 || pool.size() < pool.options().get_max_connections();
        if !has_room {
            return Err(
                "the pool of the relay has no connection for reports: give it one more".into()
            );
        }
        pool.acquire().await.map_err(|error| error.to_string())
    }
}

/// A coordinator that refuses reports, such as one of an earlier version, is asked more seldom.
fn unanswered_pause(error: &Error) -> Duration {
    if error.rejection().is_some() { PAUSE_MAX } else { UNANSWERED_PAUSE }
}

fn refusal(code: &str, message: String) -> v1::OutboxActionResult {
    v1::OutboxActionResult { code: code.to_owned(), message, ..v1::OutboxActionResult::default() }
}

fn no_answer() -> String {
    format!("the database does not answer within {DATABASE_MAX:?}")
}
