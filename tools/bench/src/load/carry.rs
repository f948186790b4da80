//! Connects a [`StreamClient`] to a server over any carrier of frames.

use std::future::{self, Future};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use handfast_proto::v1::{ClientFrame, ServerFrame};

use super::stream_client::StreamClient;
use super::{Alarm, Arrivals, Counters, Load, Window};

/// How long after the window transactions in progress may take to end.
const DRAIN_WITHIN: Duration = Duration::from_secs(60);

/// A connection that carries frames to a server and back.
pub(super) trait Carrier {
    /// Queues a frame to be sent.
    ///
    /// # Errors
    /// If the connection has ended.
    fn send(&mut self, frame: ClientFrame) -> Result<()>;

    /// Waits for the next frame, `None` at the end. Cancellation loses no frame.
    fn receive(&mut self) -> impl Future<Output = Result<Option<ServerFrame>>> + Send;

    /// Closes the sending side, and waits until the server has read everything. Otherwise the last
    /// outcomes of phase two could be lost, and the server would repeat the calls on the next
    /// connection.
    fn close(self) -> impl Future<Output = ()> + Send;
}

/// Loads one connection for the time of the window, and returns the counts.
pub(super) async fn run(
    mut carrier: impl Carrier,
    share: Load,
    window: Window,
    number: usize,
) -> Result<Counters> {
    let arrivals = Arrivals::new(share.pace, Instant::now(), window.until);
    let mut client = StreamClient::new(&share, arrivals, window, number);
    let drained = tokio::time::sleep_until((window.until + DRAIN_WITHIN).into());
    tokio::select! {
        ended = drive(&mut carrier, &mut client, window) => ended?,
        () = drained => return Ok(client.into_counters()),
    }
    carrier.close().await;
    Ok(client.into_counters())
}

async fn drive(
    carrier: &mut impl Carrier,
    client: &mut StreamClient,
    window: Window,
) -> Result<()> {
    let alarm = Alarm::new()?;
    loop {
        let now = Instant::now();
        client.start_due(now);
        while let Some(frame) = client.next_frame() {
            carrier.send(frame)?;
        }
        if client.over(now) {
            return Ok(());
        }
        // A closed loop has no due time, and must still notice the end of the window.
        let due = client.next_due().or_else(|| (now < window.until).then_some(window.until));
        tokio::select! {
            biased;
            frame = carrier.receive() => match frame? {
                Some(frame) => client.receive(Instant::now(), frame),
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
