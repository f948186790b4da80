//! The echo of Seata's frames.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use bytes::BytesMut;
use handfast_proto::v1::ServerFrame;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

use super::echo::EchoConnection;
use super::log::AppendLog;
use crate::seata::READ_BYTES;
use crate::seata::server::ServerSide;

/// The number of frames that are sent in one write.
const FRAMES_TOGETHER: usize = 256;

/// Serves until the process is killed.
pub(super) async fn serve(listen: SocketAddr, log: Option<AppendLog>) -> Result<()> {
    let listener = TcpListener::bind(listen).await.context("serving the echo")?;
    loop {
        let (stream, _) = listener.accept().await.context("serving the echo")?;
        stream.set_nodelay(true)?;
        let log = log.clone();
        tokio::spawn(async move {
            if let Err(error) = serve_connection(stream, log).await {
                say(&error);
            }
        });
    }
}

#[expect(clippy::print_stderr, reason = "the person who measures has to see it")]
fn say(error: &anyhow::Error) {
    eprintln!("the echo closes a connection: {error:#}");
}

async fn serve_connection(stream: TcpStream, log: Option<AppendLog>) -> Result<()> {
    let (reader, writer) = stream.into_split();
    let (outgoing, frames) = mpsc::unbounded_channel();
    let (registered, registrations) = mpsc::unbounded_channel();
    let writing = tokio::spawn(write_all(writer, frames, registrations));
    let read = receive_all(reader, EchoConnection::new(log, outgoing), &registered).await;
    drop(registered);
    writing.await.context("writing answers")??;
    read
}

/// Receives all frames that have arrived, then flushes their replies.
async fn receive_all(
    mut reader: OwnedReadHalf,
    mut connection: EchoConnection,
    registered: &mpsc::UnboundedSender<Vec<u8>>,
) -> Result<()> {
    let (mut side, mut bytes) = (ServerSide::default(), BytesMut::new());
    loop {
        bytes.reserve(READ_BYTES);
        if reader.read_buf(&mut bytes).await.context("reading")? == 0 {
            return Ok(());
        }
        while let Some(received) = side.read(&mut bytes)? {
            if let Some(message) = received.message {
                connection.receive(message, Some(&received.bytes));
            } else {
                // The writing side reports a connection that has ended.
                let _ = registered.send(received.answer);
            }
        }
        connection.flush();
    }
}

async fn write_all(
    mut writer: OwnedWriteHalf,
    mut frames: mpsc::UnboundedReceiver<ServerFrame>,
    mut registrations: mpsc::UnboundedReceiver<Vec<u8>>,
) -> Result<()> {
    let (mut side, mut gathered, mut bytes) = (ServerSide::default(), Vec::new(), Vec::new());
    loop {
        tokio::select! {
            taken = frames.recv_many(&mut gathered, FRAMES_TOGETHER) => if taken == 0 {
                break;
            },
            Some(answer) = registrations.recv() => bytes.extend(answer),
        }
        for message in gathered.drain(..).flat_map(|frame| frame.messages) {
            side.write(message, &mut bytes)?;
        }
        writer.write_all(&bytes).await.context("writing")?;
        bytes.clear();
    }
    Ok(())
}
