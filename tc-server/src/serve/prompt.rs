//! A limit on how long a client of HTTP/2 may take to begin.
//!
//! Pings, which find out clients that have vanished, start after the client's preface; a client
//! that never sends it would keep its place for ever.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_util::either::Either;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::security::Ready;

/// `PRI * HTTP/2.0` and what follows it.
const PREFACE_BYTES: usize = 24;

/// A connection whose reads fail when the preface is not there in time.
#[derive(Debug)]
pub(super) struct Prompt {
    io: Ready,
    /// Until the preface has been read.
    wait: Option<Wait>,
}

#[derive(Debug)]
struct Wait {
    bytes_left: usize,
    deadline: Pin<Box<Sleep>>,
}

impl Prompt {
    /// The time counts from here.
    pub(super) fn new(io: Ready, limit: Duration) -> Self {
        let wait = Wait { bytes_left: PREFACE_BYTES, deadline: Box::pin(sleep(limit)) };
        Self { io, wait: Some(wait) }
    }
}

impl Connected for Prompt {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        match &self.io {
            Either::Left(plain) => plain.connect_info(),
            Either::Right(encrypted) => encrypted.get_ref().0.connect_info(),
        }
    }
}

impl AsyncRead for Prompt {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        let Some(wait) = &mut self.wait else { return read };
        if read.is_pending() {
            let late = || io::Error::new(ErrorKind::TimedOut, "the client does not begin to speak");
            return wait.deadline.as_mut().poll(context).map(|()| Err(late()));
        }
        wait.bytes_left = wait.bytes_left.saturating_sub(buffer.filled().len() - before);
        if wait.bytes_left == 0 {
            self.wait = None;
        }
        read
    }
}

impl AsyncWrite for Prompt {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
