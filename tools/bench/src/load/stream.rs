//! The native stream as a [`Carrier`].

use anyhow::{Context, Result};
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::coordinator_client::CoordinatorClient;
use handfast_proto::v1::{self, ClientFrame, ClientMessage, ServerFrame};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;
use tonic::transport::Endpoint;

use super::carry::Carrier;

const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Both directions of a stream.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) outgoing: mpsc::UnboundedSender<ClientFrame>,
    pub(crate) incoming: Streaming<ServerFrame>,
}

impl Carrier for Connection {
    fn send(&mut self, frame: ClientFrame) -> Result<()> {
        self.outgoing.send(frame).context("the server has ended the stream")
    }

    async fn receive(&mut self) -> Result<Option<ServerFrame>> {
        Ok(self.incoming.message().await?)
    }

    async fn close(self) {
        let Self { outgoing, mut incoming } = self;
        drop(outgoing);
        // An error ends the stream, too.
        while let Ok(Some(_)) = incoming.message().await {}
    }
}

/// Opens a stream and sends the handshake. The reply is still to be read.
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
