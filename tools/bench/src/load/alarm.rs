//! A timer that is accurate to some ten microseconds.
//!
//! tokio's own timer counts milliseconds, which would be most of the latency that an open loop
//! measures from the moment at which a transaction was due. A thread sleeps instead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::sync::Notify;

/// An alarm that one task can wait for repeatedly.
#[derive(Debug)]
pub(crate) struct Alarm {
    asked: mpsc::Sender<Instant>,
    rung: Arc<Rung>,
}

#[derive(Debug, Default)]
struct Rung {
    notify: Notify,
    /// Whether the thread sleeps for a waiting task.
    armed: AtomicBool,
}

impl Alarm {
    /// Starts its thread, which ends when the alarm is dropped.
    pub(crate) fn new() -> Result<Self> {
        let (asked, to_sleep) = mpsc::channel::<Instant>();
        let rung = Arc::<Rung>::default();
        let bell = Arc::clone(&rung);
        let sleep = move || {
            for until in to_sleep {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                bell.armed.store(false, Ordering::Release);
                bell.notify.notify_one();
            }
        };
        let named = std::thread::Builder::new().name("alarm".to_owned());
        named.spawn(sleep).context("starting an alarm")?;
        Ok(Self { asked, rung })
    }

    /// Waits until a point in time, and returns at once if it has passed. May return early, at a
    /// time that an earlier call waited for: the caller reads the clock anyway.
    pub(crate) async fn reach(&self, at: Instant) -> Result<()> {
        if at <= Instant::now() {
            return Ok(());
        }
        if !self.rung.armed.swap(true, Ordering::AcqRel) {
            self.asked.send(at).context("the alarm's thread has ended")?;
        }
        self.rung.notify.notified().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test]
    async fn an_alarm_rings_when_its_time_has_come_and_can_be_set_again() {
        let alarm = Alarm::new().unwrap();
        for _ in 0..3 {
            let at = Instant::now() + Duration::from_micros(200);
            while Instant::now() < at {
                alarm.reach(at).await.unwrap();
            }
        }
        alarm.reach(Instant::now()).await.unwrap();
    }
}
