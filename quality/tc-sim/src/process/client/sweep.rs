//! Finishes branches of its own node that were left prepared, at start and on a timer: the steps of
//! `twophase/sweep.rs`, with the product's verdict.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use handfast::{Error, GlobalStatus};
use handfast_proto::v1::GetStatusRequest;
use handfast_proto::v1::client_message::Body as ClientBody;
use handfast_proto::v1::server_message::Body as ServerBody;
use handfast_rm_core::two_phase::{BranchName, SweepAction, of_sweep};

use super::ClientProcess;
use crate::model::database::Database;
use crate::workload::transfers::node_of;
use crate::world::SECOND;

/// The pause between two sweeps.
const PAUSE: u64 = 4 * SECOND;
/// How long a global must be unknown before its branch is rolled back.
const UNKNOWN_MIN: Duration = Duration::from_secs(10);

/// For each branch whose global the coordinator does not know: since when.
type UnknownSince = BTreeMap<String, u64>;

impl ClientProcess {
    /// Sweeps a database until the workload is closed.
    pub(super) async fn sweep(self: Arc<Self>, database: Arc<Database>) {
        let mut unknown_since = UnknownSince::new();
        while !self.installation.workload.is_closed() {
            self.sweep_once(&database, &mut unknown_since).await;
            self.world.sleep(PAUSE).await;
        }
    }

    async fn sweep_once(
        self: &Arc<Self>,
        database: &Arc<Database>,
        unknown_since: &mut UnknownSince,
    ) {
        let Ok(listed) = database.recover().await else { return };
        let node = node_of(self.index);
        let found: Vec<BranchName> =
            listed.iter().filter_map(|name| BranchName::parse(name, &node)).collect();
        // Time that was counted for a branch that has gone must not count for one of its name.
        unknown_since.retain(|name, _| listed.contains(name));
        for name in found {
            match self.sweep_verdict(&name, unknown_since).await {
                Ok(SweepAction::Leave) => {}
                Ok(SweepAction::Finish(decision)) => {
                    self.crash_point("in-sweep").await;
                    let finished = self.finish_branch(database, decision, &name, None).await;
                    self.world
                        .log(self.owner(), || format!("sweeps {name}: {decision:?} {finished:?}"));
                }
                Err(error) => {
                    self.world.log(self.owner(), || format!("{name} not swept: {error}"));
                    return;
                }
            }
        }
    }

    async fn sweep_verdict(
        self: &Arc<Self>,
        name: &BranchName,
        unknown_since: &mut UnknownSince,
    ) -> Result<SweepAction, Error> {
        let request = GetStatusRequest { xid: name.xid.to_string() };
        let reply =
            self.request("get_status", ClientBody::GetStatus(request), Duration::ZERO).await?;
        let ServerBody::GetStatus(reply) = reply else {
            let got = format!("{reply:?}");
            return Err(Error::UnexpectedAnswer { request: "get_status", got });
        };
        let status = GlobalStatus::from_wire(reply.status(), reply.rollback_reason());
        let (text, now) = (name.to_string(), self.world.now());
        let unknown_for = if status == GlobalStatus::Unknown {
            now - *unknown_since.entry(text).or_insert(now)
        } else {
            unknown_since.remove(&text);
            0
        };
        Ok(of_sweep(status, Duration::from_micros(unknown_for), UNKNOWN_MIN))
    }
}
