//! A connection from its arrival to where it goes: to this node's front end, or on to the leader.
//!
//! A connection takes one hop at most: one that another node has passed on is served or closed.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use metrics::Gauge;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};
use tokio_util::either::Either;
use tokio_util::sync::CancellationToken;

use super::SeataFrontend;
use super::closing::ConnectionEnd;
use super::connection::serve_connection;
use super::members::{Accepted, Dialed, Members, Opened, Origin};
use super::preface::ACCEPTED;
use super::relay::relay;
use super::terms::{Term, Way};
use crate::accept::Connection;
use crate::engine::changed;
use crate::metrics::passed_on_connections;

/// The pause before a leader that was not reached is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Where a connection goes, until the term of that leader has ended.
enum Destination {
    Here(CancellationToken),
    Leader(Box<Dialed>, CancellationToken),
}

/// Counts a connection that is passed on until it is dropped.
struct Counted(Gauge);

/// Serves a connection, or passes it on, until either side ends it, the leader changes or the port
/// is closed.
pub(super) async fn serve_arrival(
    frontend: SeataFrontend,
    io: Connection,
    peer: SocketAddr,
    terms: watch::Receiver<Term>,
    stop: CancellationToken,
) {
    let arrived = tokio::select! {
        arrived = frontend.arrive(io, peer, terms) => arrived,
        () = stop.cancelled() => Err(ConnectionEnd::Stopping),
    };
    match arrived {
        Ok((opened, Destination::Here(ended))) => frontend.serve_here(opened, peer, ended).await,
        Ok((opened, Destination::Leader(leader, ended))) => {
            let _counted = Counted::new();
            let Opened { io, bytes, .. } = opened;
            let limit = frontend.shared.settings.silence_limit;
            relay(io, bytes, leader, limit, ended).await.report(peer, None);
        }
        Err(ended) => ended.report(peer, None),
    }
}

impl SeataFrontend {
    async fn arrive(
        &self,
        io: Connection,
        peer: SocketAddr,
        terms: watch::Receiver<Term>,
    ) -> Result<(Opened, Destination), ConnectionEnd> {
        let opened = self.open(io, peer).await?;
        let destination = self.find(&opened, terms).await?;
        Ok((opened, destination))
    }

    /// Reads the beginning of a connection. Where no other node can lead there is nothing to tell
    /// apart.
    async fn open(&self, io: Connection, peer: SocketAddr) -> Result<Opened, ConnectionEnd> {
        let Some(members) = &self.shared.members else {
            let (io, bytes) = (Either::Left(io), BytesMut::new());
            return Ok(Opened { io, bytes, client: peer, from: Origin::Client });
        };
        let opening = members.open(io, peer);
        let opened = timeout(self.shared.settings.silence_limit, opening).await;
        opened.map_err(|_elapsed| ConnectionEnd::Silent)?
    }

    /// Finds out where a connection goes. Waits while no leader can be reached, unless that has
    /// lasted too long.
    async fn find(
        &self,
        opened: &Opened,
        mut terms: watch::Receiver<Term>,
    ) -> Result<Destination, ConnectionEnd> {
        loop {
            let Term { way, ended } = terms.borrow_and_update().clone();
            match (&way, &self.shared.members) {
                (Way::Here(_), _) => return Ok(Destination::Here(ended)),
                (Way::To(..), _) if opened.from == Origin::Member => {
                    return Err(ConnectionEnd::PassedOnTwice);
                }
                (Way::To(leader, _), Some(members)) => tokio::select! {
                    leader = self.reach(members, leader, opened.client) => {
                        if let Some(leader) = leader {
                            return Ok(Destination::Leader(Box::new(leader), ended));
                        }
                    }
                    // The leader has changed: the attempt may wait for a node that is gone.
                    () = changed(&mut terms) => continue,
                },
                (Way::To(..) | Way::Nowhere, _) => {}
            }
            tokio::select! {
                () = sleep_until(self.shared.outage.deadline()) => {
                    return Err(ConnectionEnd::NoLeader);
                }
                () = changed(&mut terms) => {}
                // Without a leader to try, only another term can help.
                () = sleep(RETRY_PAUSE), if way != Way::Nowhere => {}
            }
        }
    }

    async fn reach(&self, members: &Members, leader: &str, client: SocketAddr) -> Option<Dialed> {
        match members.dial(leader, client).await {
            Ok(dialed) => {
                self.shared.outage.end();
                Some(dialed)
            }
            Err(error) => {
                tracing::debug!(leader, %error, "a connection did not reach the leader");
                None
            }
        }
    }

    /// Serves a connection of a client, which another node may have passed on.
    async fn serve_here(self, opened: Opened, peer: SocketAddr, ended: CancellationToken) {
        let Opened { mut io, bytes, client, from } = opened;
        if from == Origin::Member
            && let Err(error) = accept(&mut io, self.shared.settings.silence_limit).await
        {
            return error.report(peer, None);
        }
        let Some(_taken) = self.shared.addresses.take(client) else {
            return ConnectionEnd::SameAddress.report(client, None);
        };
        serve_connection(self, io, bytes, client, ended).await;
    }
}

/// Tells the node that passes a connection on that it is served.
async fn accept(io: &mut Accepted, limit: Duration) -> Result<(), ConnectionEnd> {
    let saying = async {
        io.write_all(ACCEPTED).await?;
        io.flush().await
    };
    timeout(limit, saying).await.map_err(|_elapsed| ConnectionEnd::Overfull)??;
    Ok(())
}

impl Counted {
    fn new() -> Self {
        let gauge = passed_on_connections();
        gauge.increment(1.0);
        Self(gauge)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.decrement(1.0);
    }
}
