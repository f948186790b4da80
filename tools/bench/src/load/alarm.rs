//! A timer that is exact to some ten microseconds.
//!
//! tokio's own timer counts milliseconds, which would be most of the latency that an open loop
//! measures from the moment at which a transaction was to begin. So a thread sleeps instead.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::sync::Notify;

/// An alarm that can be waited for again and again, by one task.
#[derive(Debug)]
pub(crate) struct Alarm {
    asked: mpsc::Sender<Instant>,
    rung: Arc<Rung>,
}

#[derive(Debug, Default)]
struct Rung {
    notify: Notify,
    /// Whether the thread sleeps for somebody.
    armed: AtomicBool,
}

impl Alarm {
    /// Starts its thread, which ends with it.
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

    /// Waits until then; returns at once when it is over. May return early, at a time that was
    /// waited for before: the caller looks at the clock anyway.
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
