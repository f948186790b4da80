//! Participants die, or receive no decision. Their prepared branches end as the coordinator has
//! decided.

use std::time::Duration;

use handfast::participant::{Branch, Participant, ParticipantResource, Vote};
use handfast::{Global, GlobalStatus, Handfast, Xid};
use handfast_test_services::until;
use tempfile::TempDir;

use crate::client::ClientPart;
use crate::coordinator::Coordinator;
use crate::vault::Vault;

struct Stage {
    coordinator: Coordinator,
    handfast: Handfast,
    directory: TempDir,
    /// A view of the accounts.
    vault: Vault,
}

impl Stage {
    async fn new() -> Self {
        let coordinator = Coordinator::start().await;
        let handfast = Handfast::connect(coordinator.endpoint()).await.unwrap();
        let directory = TempDir::new().unwrap();
        let vault = Vault::open(&path(&directory)).await;
        vault.lay_out(&handfast).await;
        Self { coordinator, handfast, directory, vault }
    }

    async fn begin(&self) -> Global {
        self.handfast.transaction("test").can_commit_first().begin().await.unwrap()
    }

    fn client(&self, global: &Global) -> ClientPart {
        let (endpoint, xid) = (self.coordinator.endpoint(), global.xid().to_string());
        ClientPart { endpoint, path: path(&self.directory), xid }
    }

    /// Starts another process of the participant. The coordinator may ask it, but it asks for
    /// decisions only at its start and when the test calls `settle`.
    async fn rescuer(&self, orphan_after: Duration) -> Rescuer {
        let handfast = Handfast::connect(self.coordinator.endpoint()).await.unwrap();
        let vault = Vault::open(&path(&self.directory)).await;
        let resource = handfast.participant("vault", vault).orphan_after(orphan_after);
        let resource = resource.ask_every(Duration::from_secs(3_600)).start().unwrap();
        Rescuer { handfast, resource }
    }

    async fn until(&self, xid: &Xid, expected: GlobalStatus) {
        let reached = async || self.handfast.outcome(xid).await.unwrap() == expected;
        until("the global comes to its end", reached).await;
    }
}

/// A participant with a connection of its own.
struct Rescuer {
    handfast: Handfast,
    resource: ParticipantResource<Vault>,
}

impl Rescuer {
    async fn leave(self) {
        self.handfast.close().await;
    }
}

fn path(directory: &TempDir) -> String {
    directory.path().join("vault.db").to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_participant_killed_around_prepare_is_replaced() {
    let stage = Stage::new().await;
    let mut cents = 1000;
    for (point, set_aside) in [("participant-before-prepare", 0), ("participant-after-prepare", 10)]
    {
        let global = stage.begin().await;
        let xid = global.xid().clone();
        let mut client = stage.client(&global).crash_at(point);
        assert_eq!(client.next_report::<String>().await, "joined");
        let committing = tokio::spawn(async move { global.commit().await });
        client.crashed().await;
        assert_eq!(stage.vault.cents().await, [cents - set_aside, set_aside], "{point}");
        let rescuer = stage.rescuer(Duration::from_secs(3_600)).await;
        committing.await.unwrap().unwrap();
        stage.until(&xid, GlobalStatus::Committed).await;
        cents -= 10;
        assert_eq!(stage.vault.cents().await, [cents, 0], "{point}");
        rescuer.leave().await;
    }
}

/// The participant votes yes and dies. The next process receives the decision or asks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_participant_killed_around_commit_is_replaced() {
    let stage = Stage::new().await;
    let mut cents = 1000;
    for point in ["participant-before-commit", "participant-after-commit"] {
        let global = stage.begin().await;
        let xid = global.xid().clone();
        let mut client = stage.client(&global).crash_at(point);
        assert_eq!(client.next_report::<String>().await, "joined");
        global.commit().await.unwrap();
        client.crashed().await;
        assert_eq!(stage.handfast.outcome(&xid).await.unwrap(), GlobalStatus::Committing);
        cents -= 10;
        let rescuer = stage.rescuer(Duration::from_secs(3_600)).await;
        stage.until(&xid, GlobalStatus::Committed).await;
        assert_eq!(stage.vault.cents().await, [cents, 0], "{point}");
        rescuer.leave().await;
    }
}

/// A participant decides no branch alone, and settles no undecided branch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_participant_without_a_decision_asks() {
    let stage = Stage::new().await;
    let rescuer = stage.rescuer(Duration::ZERO).await;
    let resource = &rescuer.resource;
    let global = stage.begin().await;
    let id = global.scope(async { resource.join(&10).await }).await.unwrap();
    let branch = Branch { xid: global.xid().clone(), id, input: 10 };
    assert_eq!(stage.vault.prepare(&branch).await.unwrap(), Vote::Yes);
    for _ in 0..3 {
        let settled = resource.settle().await.unwrap();
        assert_eq!((settled.committed, settled.rolled_back, settled.left), (0, 0, 1));
    }
    global.rollback("test").await.unwrap();
    assert_eq!(stage.vault.cents().await, [1000, 0]);

    // A prepare after the rollback is refused by the fence. A branch that is prepared without the
    // fence is found by asking the coordinator.
    let late = stage.vault.prepare(&branch).await.unwrap();
    assert!(matches!(late, Vote::No(_)), "{late:?}");
    let stray = Branch { id: branch.id ^ 1, ..branch };
    assert_eq!(stage.vault.prepare(&stray).await.unwrap(), Vote::Yes);
    let settled = resource.settle().await.unwrap();
    assert_eq!((settled.committed, settled.rolled_back, settled.left), (0, 1, 0));
    assert_eq!(stage.vault.cents().await, [1000, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unknown_branch_is_rolled_back_only_after_a_time() {
    let stage = Stage::new().await;
    let xid: Xid = "127.0.0.1:1:7".parse().unwrap();
    let branch = Branch { xid, id: 7, input: 10 };
    let patient = stage.rescuer(Duration::from_secs(3_600)).await;
    stage.vault.prepare(&branch).await.unwrap();
    let settled = patient.resource.settle().await.unwrap();
    assert_eq!((settled.committed, settled.rolled_back, settled.left), (0, 0, 1));
    let hasty = stage.rescuer(Duration::ZERO).await;
    until("it is rolled back", async || {
        hasty.resource.settle().await.unwrap();
        stage.vault.cents().await == [1000, 0]
    })
    .await;
}

/// An unreachable coordinator is not a decision.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_branch_is_decided_without_the_coordinator() {
    let mut stage = Stage::new().await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    let mut client = stage.client(&global).crash_at("participant-before-commit");
    assert_eq!(client.next_report::<String>().await, "joined");
    global.commit().await.unwrap();
    client.crashed().await;
    stage.coordinator.kill().await;
    assert_eq!(stage.vault.cents().await, [990, 10]);
    stage.coordinator.restart().await;
    let rescuer = stage.rescuer(Duration::ZERO).await;
    stage.until(&xid, GlobalStatus::Committed).await;
    assert_eq!(stage.vault.cents().await, [990, 0]);
    rescuer.leave().await;
}
