//! A participant in a process of its own.

use std::time::Duration;

use handfast::{Handfast, Xid};
use serde::{Deserialize, Serialize};

use crate::child::{Child, report};
use crate::vault::Vault;

/// The parameters of a participant in a child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ClientPart {
    /// The endpoint of the coordinator.
    pub(crate) endpoint: String,
    /// The database file.
    pub(crate) path: String,
    /// The global to join.
    pub(crate) xid: String,
}

impl ClientPart {
    /// Starts the child, which dies at a crash point.
    pub(crate) fn crash_at(&self, point: &str) -> Child {
        Child::start("client", self, &[("HANDFAST_CRASH_POINT", point)])
    }
}

/// Runs in the child: joins the global and waits for the coordinator's questions.
pub(crate) async fn play(part: ClientPart) {
    let handfast = Handfast::connect(&part.endpoint).application("child").await.unwrap();
    let vault = handfast.participant("vault", Vault::open(&part.path).await);
    let vault = vault.ask_every(Duration::from_secs(3_600)).start().unwrap();
    let xid: Xid = part.xid.parse().unwrap();
    xid.scope(async { vault.join(&10).await }).await.unwrap();
    report("joined");
    std::future::pending::<()>().await;
}
