//! The reasons for which a connection ends, and how they are reported.

use std::net::SocketAddr;

use handfast_seata_wire::WireError;
use handfast_seata_wire::frame::FirstBytes;

use crate::turned_away::{PortName, Why, note};

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionEnd {
    #[error("the client closed it")]
    ByClient,
    #[error("the leader closed it")]
    ByLeader,
    #[error("the client was silent, or slow to finish a frame")]
    Silent,
    #[error("the client does not read")]
    Overfull,
    #[error("the coordinator is shutting down")]
    Stopping,
    #[error("it does not begin with a frame of Seata: {0:?}")]
    Protocol(FirstBytes),
    #[error("the TLS handshake failed: {0}")]
    Handshake(std::io::Error),
    #[error("no leader that serves clients of Seata can be reached")]
    NoLeader,
    #[error("another node passed it on, and this one does not lead")]
    PassedOnTwice,
    #[error("another connection has its address")]
    SameAddress,
    #[error("the client registers branches, and has not registered itself")]
    Unregistered,
    #[error("{0}")]
    Wire(#[from] WireError),
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl ConnectionEnd {
    /// Reports the end of the connection. Ends that may need an operator are counted and logged.
    pub(super) fn report(&self, peer: SocketAddr, unwritten: Option<std::io::Error>) {
        match self {
            Self::Wire(error) => {
                let what = format_args!("{}: {error}", error.code());
                note(PortName::Seata, Why::Malformed, Some(&peer), &what);
            }
            Self::Protocol(_) => note(PortName::Seata, Why::Malformed, Some(&peer), self),
            Self::Overfull => note(PortName::Seata, Why::SlowReader, Some(&peer), self),
            Self::Silent => note(PortName::Seata, Why::Silent, Some(&peer), self),
            Self::Handshake(_) => note(PortName::Seata, Why::Handshake, Some(&peer), self),
            Self::NoLeader | Self::SameAddress => {
                note(PortName::Seata, Why::Failed, Some(&peer), self);
            }
            Self::ByClient
            | Self::ByLeader
            | Self::PassedOnTwice
            | Self::Stopping
            | Self::Unregistered
            | Self::Io(_) => {
                tracing::debug!(%peer, why = %self, ?unwritten, "a connection of a Seata client ended");
            }
        }
    }
}
