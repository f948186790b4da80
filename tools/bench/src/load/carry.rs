//! Takes a [`Talk`] to a server over any carrier of frames.

use std::future::{self, Future};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use handfast_proto::v1::{ClientFrame, ServerFrame};

use super::talk::Talk;
use super::{Alarm, Arrivals, Load, Tally, Window};

/// How long after the window what is under way may take to end.
const DRAIN_WITHIN: Duration = Duration::from_secs(60);

/// A connection that takes frames to a server and brings back its answers.
pub(super) trait Carrier {
    /// Sends a frame some time soon.
    ///
    /// # Errors
    /// The connection has ended.
    fn send(&mut self, frame: ClientFrame) -> Result<()>;

    /// Waits for the next answers; `None` at the end. Nothing is lost if it is cancelled.
    fn receive(&mut self) -> impl Future<Output = Result<Option<ServerFrame>>> + Send;

    /// Says that nothing more comes and waits until all that was sent is taken: otherwise the last
    /// outcomes of phase two could be lost, and the next connection would be asked again.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Loads one connection for the time of the window and gives back what it counted.
pub(super) async fn run(
    mut carrier: impl Carrier,
    share: Load,
    window: Window,
    number: usize,
) -> Result<Tally> {
    let arrivals = Arrivals::new(share.pace, Instant::now(), window.until);
    let mut talk = Talk::new(&share, arrivals, window, number);
    let drained = tokio::time::sleep_until((window.until + DRAIN_WITHIN).into());
    tokio::select! {
        ended = converse(&mut carrier, &mut talk, window) => ended?,
        () = drained => return Ok(talk.into_tally()),
    }
    carrier.close().await;
    Ok(talk.into_tally())
}

async fn converse(carrier: &mut impl Carrier, talk: &mut Talk, window: Window) -> Result<()> {
    let alarm = Alarm::new()?;
    loop {
        let now = Instant::now();
        talk.start_due(now);
        while let Some(frame) = talk.next_frame() {
            carrier.send(frame)?;
        }
        if talk.over(now) {
            return Ok(());
        }
        let due = talk.next_due().or_else(|| (now < window.until).then_some(window.until));
        tokio::select! {
            biased;
            frame = carrier.receive() => match frame? {
                Some(frame) => talk.receive(Instant::now(), frame),
                None => bail!("the server has ended the connection"),
            },
            reached = reach(&alarm, due) => reached?,
        }
    }
}

async fn reach(alarm: &Alarm, due: Option<Instant>) -> Result<()> {
    match due {
        Some(due) => alarm.reach(due).await,
        None => future::pending().await,
    }
}
