//! A connection of a Seata client as a [`Carrier`]. Frames that gather are sent in one write.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use bytes::BytesMut;
use handfast_proto::v1::{ClientFrame, ServerFrame};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::carry::Carrier;
use crate::seata::READ_BYTES;
use crate::seata::client::ClientSide;

/// A connection, registered as TM and as the RM of one resource.
#[derive(Debug)]
pub(super) struct SeataClient {
    side: ClientSide,
    outgoing: mpsc::UnboundedSender<Vec<u8>>,
    incoming: OwnedReadHalf,
    bytes: BytesMut,
}

impl SeataClient {
    /// Connects and registers.
    pub(super) async fn connect(address: SocketAddr, resource: &str) -> Result<Self> {
        let stream = TcpStream::connect(address).await.context("connecting")?;
        stream.set_nodelay(true)?;
        let (incoming, writer) = stream.into_split();
        let (outgoing, frames) = mpsc::unbounded_channel();
        tokio::spawn(write_all(writer, frames));
        let mut client =
            Self { side: ClientSide::default(), outgoing, incoming, bytes: BytesMut::new() };
        let mut registrations = Vec::new();
        client.side.register_process(resource, &mut registrations)?;
        client.outgoing.send(registrations).context("the server has ended the connection")?;
        while !client.side.is_registered() {
            ensure!(client.read_more().await? > 0, "the server takes no registrations");
            client.side.read(&mut client.bytes)?;
        }
        Ok(client)
    }

    async fn read_more(&mut self) -> Result<usize> {
        self.bytes.reserve(READ_BYTES);
        self.incoming.read_buf(&mut self.bytes).await.context("reading")
    }
}

impl Carrier for SeataClient {
    fn send(&mut self, frame: ClientFrame) -> Result<()> {
        let mut bytes = Vec::new();
        self.side.write(frame, &mut bytes)?;
        self.outgoing.send(bytes).context("the server has ended the connection")
    }

    async fn receive(&mut self) -> Result<Option<ServerFrame>> {
        loop {
            let frame = self.side.read(&mut self.bytes)?;
            if !frame.messages.is_empty() {
                return Ok(Some(frame));
            }
            if self.read_more().await? == 0 {
                return Ok(None);
            }
        }
    }

    async fn close(self) {
        let Self { outgoing, mut incoming, mut bytes, .. } = self;
        drop(outgoing);
        // An error ends the connection, too.
        while incoming.read_buf(&mut bytes).await.is_ok_and(|read| read > 0) {
            bytes.clear();
        }
    }
}

async fn write_all(mut writer: OwnedWriteHalf, mut frames: mpsc::UnboundedReceiver<Vec<u8>>) {
    while let Some(mut bytes) = frames.recv().await {
        while let Ok(more) = frames.try_recv() {
            bytes.extend(more);
        }
        // The reading side reports a connection that has ended.
        if writer.write_all(&bytes).await.is_err() {
            return;
        }
    }
    // The connection may have ended already.
    let _ = writer.shutdown().await;
}
