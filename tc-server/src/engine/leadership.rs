//! How the engine stands in the life of its node.
//!
//! ```text
//!               ┌───────────── the lead is lost or resigned ────────────┐
//! Following ────┴──▶ Gaining: fence ▸ read ▸ load ▸ resume ▸ owed ──▶ Leading ──▶ Ended
//!  answers "elsewhere"          answers "not yet"                     answers
//! ```
//!
//! The store tells the first two apart, since only the store knows of other nodes.

use handfast_core::Epoch;
use tokio::sync::watch;

use crate::store::{CoordinatorNode, Leader};

/// How the engine stands. It answers from a state of its own only while it leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// Another node leads, or none.
    Following(Leader),
    /// It gains the lead, or reads the records.
    Gaining,
    /// It answers.
    Leading(Epoch),
    /// It has ended.
    Ended,
}

impl Leadership {
    /// Returns the leadership of an engine that does not lead.
    pub(super) fn without_lead(leader: &Leader) -> Self {
        match leader {
            Leader::Here => Self::Gaining,
            Leader::Unknown | Leader::Elsewhere { .. } => Self::Following(leader.clone()),
        }
    }

    /// Returns the epoch in which the engine leads.
    #[must_use]
    pub fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Leading(epoch) => Some(*epoch),
            Self::Following(_) | Self::Gaining | Self::Ended => None,
        }
    }

    /// Returns whether there is an answer for a client: this node leads, or knows the leader, or
    /// has ended.
    pub(crate) fn is_settled(&self) -> bool {
        match self {
            Self::Leading(_) | Self::Following(Leader::Elsewhere { .. }) | Self::Ended => true,
            Self::Following(Leader::Unknown | Leader::Here) | Self::Gaining => false,
        }
    }

    /// Returns the epoch and node of another leader, if one is known.
    #[must_use]
    pub fn leader_elsewhere(&self) -> Option<(Epoch, &CoordinatorNode)> {
        match self {
            Self::Following(Leader::Elsewhere { epoch, node }) => Some((*epoch, node)),
            Self::Following(Leader::Unknown | Leader::Here)
            | Self::Gaining
            | Self::Leading(_)
            | Self::Ended => None,
        }
    }
}

/// Waits for another value; forever if there will be none.
pub(crate) async fn changed<T>(watched: &mut watch::Receiver<T>) {
    if watched.changed().await.is_err() {
        std::future::pending().await
    }
}
