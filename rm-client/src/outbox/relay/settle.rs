//! Records the results of publishing claimed events. Every statement checks the claim's token: a
//! relay that has lost its lanes meanwhile changes nothing.

use std::time::Duration;

use handfast_rm_core::relay::{PublishResult, UNAVAILABLE_PAUSE_MAX};
use rand::RngExt;

use super::super::error::OutboxError;
use super::super::query::Query;
use super::Settings;
use super::claim::Claimed;
use crate::at::AtDatabase;

/// How many characters of a broker's reason are stored.
const REASON_CHARS_MAX: usize = 1_000;

pub(super) async fn settle<DB: AtDatabase>(
    connection: &mut DB::Connection,
    settings: &Settings,
    token: &str,
    claimed: &[Claimed],
    results: &[PublishResult],
) -> Result<(), OutboxError> {
    let (mut published, mut waiting, mut paused) = (Vec::new(), Vec::new(), Vec::new());
    // The broker serves other events, so only these events wait, and their keys.
    let is_served = results.contains(&PublishResult::Published);
    for (claimed, result) in claimed.iter().zip(results) {
        match result {
            PublishResult::Published => published.push(claimed.seq),
            PublishResult::Unavailable(_) if is_served => paused.push(claimed.seq),
            PublishResult::Behind | PublishResult::Unavailable(_) => waiting.push(claimed.seq),
            PublishResult::Refused(reason) => {
                refuse::<DB>(connection, settings, token, claimed, reason).await?;
            }
        }
    }
    if !published.is_empty() {
        let query = Query::<DB>::new("UPDATE event_outbox SET status = 2, last_error = NULL, ");
        let query = query.sql("finished_at_ms = ").now().sql(", claimed_by = NULL, ");
        let query = query.sql("claimed_until_ms = NULL WHERE status = 1 AND claimed_by = ");
        let query = query.text(token).sql(" AND seq IN ").numbers(&published);
        query.execute(connection).await?;
    }
    for (seqs, pause) in [(waiting, Pause::None), (paused, Pause::ByAge)] {
        if !seqs.is_empty() {
            let query = Query::<DB>::new("UPDATE event_outbox SET claimed_by = NULL");
            let query = pause.write(query.sql(", claimed_until_ms = NULL"));
            let query = query.sql(" WHERE status = 1 AND claimed_by = ").text(token);
            query.sql(" AND seq IN ").numbers(&seqs).execute(connection).await?;
        }
    }
    Ok(())
}

/// When an event that is returned to the outbox is tried again.
#[derive(Clone, Copy)]
enum Pause {
    None,
    /// After half of its age, so that the pauses grow; no attempt is counted.
    ByAge,
}

impl Pause {
    fn write<DB: AtDatabase>(self, query: Query<DB>) -> Query<DB> {
        match self {
            Self::None => query,
            Self::ByAge => {
                let pause_ms_max =
                    i64::try_from(UNAVAILABLE_PAUSE_MAX.as_millis()).unwrap_or(i64::MAX >> 2);
                let query = query.sql(", next_at_ms = ").now().sql(" + CASE WHEN ").now();
                let query =
                    query.sql(" - created_at_ms < ").number(pause_ms_max * 2).sql(" THEN (");
                let query = query.now().sql(" - created_at_ms) / 2 ELSE ").number(pause_ms_max);
                query.sql(" END")
            }
        }
    }
}

/// Makes the relay try a refused event again later, or parks it.
async fn refuse<DB: AtDatabase>(
    connection: &mut DB::Connection,
    settings: &Settings,
    token: &str,
    claimed: &Claimed,
    reason: &str,
) -> Result<(), sqlx::Error> {
    let attempts = claimed.attempts + 1;
    let parked = attempts >= i64::from(settings.attempts_max);
    tracing::warn!(event = claimed.seq, attempts, parked, reason, "broker refuses an event");
    // A parked event keeps in place of its next attempt when it was parked.
    let pause = if parked { Duration::ZERO } else { pause(settings, attempts) };
    let pause_ms = i64::try_from(pause.as_millis()).unwrap_or(i64::MAX >> 1);
    // PostgreSQL takes no zero character in a text.
    let shown: String = reason.chars().filter(|c| *c != '\0').take(REASON_CHARS_MAX).collect();
    let query = Query::<DB>::new("UPDATE event_outbox SET attempts = ").number(attempts);
    let query = query.sql(if parked { ", status = 4" } else { "" });
    let query = query.sql(", last_error = ").text(&shown).sql(", next_at_ms = ").now();
    let query = query.sql(" + ").number(pause_ms).sql(", claimed_by = NULL, ");
    let query = query.sql("claimed_until_ms = NULL WHERE status = 1 AND claimed_by = ");
    query.text(token).sql(" AND seq = ").number(claimed.seq).execute(connection).await?;
    Ok(())
}

/// Returns the pause after an attempt: doubled with each one, and shortened at random by up to a
/// quarter, so that events that failed together are not tried again together.
fn pause(settings: &Settings, attempts: i64) -> Duration {
    let doublings = u32::try_from(attempts - 1).unwrap_or(0).min(30);
    let pause = settings.backoff_min.saturating_mul(1 << doublings).min(settings.backoff_max);
    pause.mul_f64(rand::rng().random_range(0.75..=1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let settings = Settings::default();
        let within = |attempts, ms: u64| {
            let pause = pause(&settings, attempts);
            let longest = Duration::from_millis(ms);
            assert!(pause <= longest && pause >= longest.mul_f64(0.74), "{attempts}: {pause:?}");
        };
        within(1, 100);
        within(2, 200);
        within(5, 1_600);
        within(40, 60_000);
    }
}
