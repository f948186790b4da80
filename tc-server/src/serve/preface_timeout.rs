//! A limit on how long an HTTP/2 client may take to send its preface.
//!
//! The pings that detect vanished clients start after the preface. Without this limit a client that
//! never sends it would keep its connection forever.

use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_util::either::Either;
use tonic::transport::server::{Connected, TcpConnectInfo};

use crate::security::Ready;
use crate::turned_away::{PortName, Why, note};

/// The first bytes of every HTTP/2 client.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose reads fail if the preface does not arrive in time.
#[derive(Debug)]
pub(super) struct PrefaceTimeout {
    io: Ready,
    /// `None` once the preface has been read.
    wait: Option<Wait>,
}

#[derive(Debug)]
struct Wait {
    preface_left: &'static [u8],
    deadline: Pin<Box<Sleep>>,
}

impl PrefaceTimeout {
    /// Wraps a connection. The time counts from this call.
    pub(super) fn new(io: Ready, limit: Duration) -> Self {
        let wait = Wait { preface_left: PREFACE, deadline: Box::pin(sleep(limit)) };
        Self { io, wait: Some(wait) }
    }
}

impl PrefaceTimeout {
    fn refuse(&self, why: Why, what: &dyn Display) {
        let peer = self.connect_info().remote_addr();
        note(PortName::Grpc, why, peer.as_ref().map(|peer| peer as &dyn Display), what);
    }
}

impl Connected for PrefaceTimeout {
    type ConnectInfo = TcpConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        match &self.io {
            Either::Left(plain) => plain.connect_info(),
            Either::Right(encrypted) => encrypted.get_ref().0.connect_info(),
        }
    }
}

impl AsyncRead for PrefaceTimeout {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        let Some(wait) = &mut self.wait else { return read };
        // Bytes that are there count even after the limit. Polling the sleep also sets its waker.
        if read.is_pending() {
            let late = || io::Error::new(ErrorKind::TimedOut, "the client does not begin to speak");
            return wait.deadline.as_mut().poll(context).map(|()| {
                self.refuse(Why::Silent, &late());
                Err(late())
            });
        }
        match left_of(wait.preface_left, &buffer.filled()[before..]) {
            Some([]) => self.wait = None,
            Some(left) => wait.preface_left = left,
            // The HTTP/2 server that reads from this connection ends it.
            None => {
                self.wait = None;
                self.refuse(Why::Malformed, &"it does not begin as HTTP/2 does");
            }
        }
        read
    }
}

/// Returns the missing part of a preface, or `None` if other bytes were read.
fn left_of(preface: &'static [u8], read: &[u8]) -> Option<&'static [u8]> {
    let (expected, left) = preface.split_at(read.len().min(preface.len()));
    read.starts_with(expected).then_some(left)
}

impl AsyncWrite for PrefaceTimeout {
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
