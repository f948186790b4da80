//! Serves the listening ports, until they are closed.

use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

use axum::Router;
use futures::{FutureExt as _, StreamExt as _};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;
use tonic::transport::Server;

use super::preface_timeout::PrefaceTimeout;
use super::write_timeout::WriteTimeout;
use crate::accept::Acceptor;
use crate::grpc::PassOnLayer;
use crate::seata;
use crate::security::{Access, GrpcAccessLayer, Listener};
use crate::turned_away::{PortName, Why, count, note};

/// How long a client may be silent before it gets a ping, and how long it then has to answer. A
/// client that vanished without notice is detected after both.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Streams and unary calls that one connection may have in progress. Further ones wait until one of
/// these has ended. Too low: registrations that wait for locks delay other calls. Too high: one
/// connection may take more of the server than its share.
const CALLS_MAX: u32 = 1_024;

/// A served port. Dropping it does not stop serving.
#[derive(Debug)]
pub(crate) struct Port {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Port {
    /// Stops the port, and returns whether every connection has ended within the limit.
    pub(crate) async fn close(&mut self, limit: Instant) -> bool {
        self.stop.cancel();
        let closed = timeout_at(limit, &mut self.task).await.is_ok();
        self.task.abort();
        closed
    }

    /// Stops the port, and waits for every connection to end.
    pub(crate) async fn close_all(&mut self) {
        self.stop.cancel();
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "a port ended early");
        }
    }

    /// Ends without waiting for connections.
    pub(crate) fn abort(&self) {
        self.task.abort();
    }
}

/// Starts serving the gRPC port when `opened` completes; connections wait until then. Disconnects a
/// client that does not send the HTTP/2 preface within the limit.
pub(crate) fn serve_grpc(
    listener: Listener,
    opened: impl Future<Output = ()> + Send + 'static,
    routes: Routes,
    access: Access,
    pass_on: PassOnLayer,
    silence_limit: Duration,
) -> Port {
    let connections = opened.map(|()| listener.into_stream()).flatten_stream();
    let connections = connections
        .map(move |connection| connection.map(|io| PrefaceTimeout::new(io, silence_limit)));
    let stop = CancellationToken::new();
    let serving = Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
        .max_concurrent_streams(CALLS_MAX)
        // The outermost layer: a node passes on no call that it would refuse itself.
        .layer(GrpcAccessLayer::new(access))
        .layer(pass_on)
        .add_routes(routes)
        .serve_with_incoming_shutdown(connections, stop.clone().cancelled_owned());
    let task = tokio::spawn(async move {
        if let Err(error) = serving.await {
            tracing::error!(%error, "the grpc port failed");
        }
    });
    Port { stop, task }
}

/// Starts serving the admin port. Disconnects a client that is silent for longer than the limit,
/// before or between requests, and one that reads nothing of an answer for as long.
pub(crate) fn serve_admin(mut listener: Listener, router: Router, silence_limit: Duration) -> Port {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let task = tokio::spawn(async move {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                (io, peer) = listener.accept() => {
                    let router = router.clone();
                    let serving =
                        serve_connection(io, peer, router, silence_limit, stopped.clone());
                    connections.spawn(serving);
                }
                // Removes the task of an ended connection from the set.
                Some(_) = connections.join_next() => {}
                () = stopped.cancelled() => break,
            }
        }
        // Closed before the open connections end: further clients are refused, and go elsewhere.
        drop(listener);
        while connections.join_next().await.is_some() {}
    });
    Port { stop, task }
}

/// Starts serving the port for clients of Seata when `opened` completes; connections wait until
/// then.
pub(crate) fn serve_seata(
    acceptor: Acceptor,
    opened: impl Future<Output = ()> + Send + 'static,
    front: seata::SeataFrontend,
) -> Port {
    let stop = CancellationToken::new();
    let stopped = stop.clone();
    let task = tokio::spawn(async move {
        tokio::select! {
            () = opened => {}
            () = stopped.cancelled() => return,
        }
        front.serve(acceptor, stopped).await;
    });
    Port { stop, task }
}

/// Answers the requests of one connection, until either side ends it.
async fn serve_connection(
    io: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    router: Router,
    silence_limit: Duration,
    stop: CancellationToken,
) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(silence_limit)
        .serve_connection(
            TokioIo::new(WriteTimeout::new(io, silence_limit)),
            TowerToHyperService::new(router),
        );
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    match ended {
        Ok(()) => {}
        Err(error) if error.is_parse() => {
            note(PortName::Admin, Why::Malformed, Some(&peer), &error);
        }
        // A client that is disconnected between requests, with all answers sent, is not at fault.
        Err(error) => {
            if error.is_timeout() {
                count(PortName::Admin, Why::Silent);
            }
            tracing::debug!(%peer, %error, "an admin connection ended early");
        }
    }
}
