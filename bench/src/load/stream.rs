//! Carries a [`Talk`] over a real stream.

use std::future;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::{self, ClientFrame, ClientMessage, ServerFrame};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

use super::shape::hello;
use super::talk::Talk;
use super::{Alarm, Arrivals, Pace, Shape, Tally, Window};

/// How long after the window what is under way may take to end.
const DRAIN_WITHIN: Duration = Duration::from_secs(60);
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Both directions of a stream.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) outgoing: mpsc::UnboundedSender<ClientFrame>,
    pub(crate) incoming: Streaming<ServerFrame>,
}

impl Connection {
    /// Says that nothing more comes and waits until all that was sent is taken: otherwise the last
    /// outcomes of phase two could be lost, and the next connection would be asked again.
    pub(crate) async fn close(self) {
        let Self { outgoing, mut incoming } = self;
        drop(outgoing);
        // A broken stream has ended too.
        while let Ok(Some(_)) = incoming.message().await {}
    }
}

/// Opens a stream and greets; the answer is still to be read.
pub(crate) async fn connect(endpoint: String, hello: v1::Hello) -> Result<Connection> {
    let channel = Endpoint::from_shared(endpoint)?.tcp_nodelay(true).connect().await?;
    let mut client = CoordinatorClient::new(channel).max_decoding_message_size(ANSWER_BYTES_MAX);
    let (outgoing, frames) = mpsc::unbounded_channel();
    let hello = ClientMessage { id: 1, body: Some(Ask::Hello(hello)) };
    outgoing
        .send(ClientFrame { messages: vec![hello] })
        .context("the stream takes its greeting")?;
    let incoming = client.connect(UnboundedReceiverStream::new(frames)).await?.into_inner();
    Ok(Connection { outgoing, incoming })
}

/// Loads one connection for the time of the window and gives back what it counted.
pub(super) async fn run(
    endpoint: String,
    shape: Shape,
    pace: Pace,
    window: Window,
    number: usize,
) -> Result<Tally> {
    let mut connection = connect(endpoint, hello(number)).await?;
    let arrivals = Arrivals::new(pace, Instant::now(), window.until);
    let mut talk = Talk::new(shape, arrivals, window, number);
    let drained = tokio::time::sleep_until((window.until + DRAIN_WITHIN).into());
    tokio::select! {
        ended = converse(&mut connection, &mut talk, window) => ended?,
        () = drained => return Ok(talk.into_tally()),
    }
    connection.close().await;
    Ok(talk.into_tally())
}

async fn converse(connection: &mut Connection, talk: &mut Talk, window: Window) -> Result<()> {
    let alarm = Alarm::new()?;
    loop {
        let now = Instant::now();
        talk.start_due(now);
        while let Some(frame) = talk.next_frame() {
            connection.outgoing.send(frame).context("the server has ended the stream")?;
        }
        if talk.over(now) {
            return Ok(());
        }
        let due = talk.next_due().or_else(|| (now < window.until).then_some(window.until));
        tokio::select! {
            biased;
            frame = connection.incoming.message() => match frame? {
                Some(frame) => talk.receive(Instant::now(), frame),
                None => bail!("the server has ended the stream"),
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
