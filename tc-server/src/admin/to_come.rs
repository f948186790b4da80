//! Timers of a transaction: its deadline, and the next attempts at phase two.

use handfast_core::{GlobalPart, GlobalStatus, Timestamp};

use super::model::{Timer, TimerKind};
use crate::dispatch::{AttemptWait, NextAttempt};
use crate::time_format::rfc3339;

/// The end of the year 9999, which stands for no deadline at all.
const NEVER: Timestamp = Timestamp(253_402_300_799_000);

/// Returns what time will bring, the next first; behind it what depends on other things.
pub(super) fn to_come(part: &GlobalPart, attempts: &[NextAttempt]) -> Vec<Timer> {
    let deadline = part.record.deadline;
    let ends = part.status == GlobalStatus::Active && deadline < NEVER;
    let mut timed: Vec<(Option<Timestamp>, Timer)> = Vec::new();
    if ends {
        let what = "rolled back, if it is undecided".to_owned();
        let timer = Timer { kind: TimerKind::Deadline, at: None, branch: None, what };
        timed.push((Some(deadline), timer));
    }
    timed.extend(attempts.iter().map(timer));
    timed.sort_by_key(|(at, _)| at.unwrap_or(Timestamp(u64::MAX)));
    timed.into_iter().map(|(at, timer)| Timer { at: at.map(rfc3339), ..timer }).collect()
}

fn timer(next: &NextAttempt) -> (Option<Timestamp>, Timer) {
    let NextAttempt { branch, resource, attempt, waits_for } = next;
    let (kind, at, what) = match waits_for {
        AttemptWait::Pause { until } => {
            (TimerKind::Attempt, Some(*until), format!("branch {branch}: attempt {attempt}"))
        }
        AttemptWait::Answer { until } => {
            let what = format!(
                "branch {branch}: attempt {attempt} counts as failed, if no answer \
                                has come"
            );
            (TimerKind::Answer, Some(*until), what)
        }
        AttemptWait::Room => {
            let what = format!("branch {branch}: waits for room at a process of {resource}");
            (TimerKind::Process, None, what)
        }
        AttemptWait::Process => {
            let what = format!("branch {branch}: waits for a process that serves {resource}");
            (TimerKind::Process, None, what)
        }
    };
    (at, Timer { kind, at: None, branch: Some(branch.to_string()), what })
}
