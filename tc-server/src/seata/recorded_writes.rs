//! Records what is written in a test, each write separately.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// Records the writes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordedWrites(Arc<Mutex<Vec<Vec<u8>>>>);

impl RecordedWrites {
    pub(super) fn all(&self) -> Vec<Vec<u8>> {
        self.0.lock().unwrap().clone()
    }
}

impl AsyncWrite for RecordedWrites {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.lock().unwrap().push(bytes.to_vec());
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
