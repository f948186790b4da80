//! A participant whose operations never end: it is asked again, and other branches are not delayed.

use std::time::Duration;

use handfast::participant::{Branch, Participant, Vote};
use handfast::{GlobalStatus, Handfast, Xid};
use handfast_test_services::until;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::child::PATIENCE;
use crate::coordinator::Coordinator;

/// The input of a branch whose rollback hangs.
const ROLL_BACK_HANGS: u32 = 1;
const GOOD: u32 = 2;

/// A participant that reports its questions and never answers some of them.
struct Stuck {
    questions: UnboundedSender<&'static str>,
}

impl Participant for Stuck {
    type Input = u32;
    type Error = &'static str;

    const TIME_LIMIT: Duration = Duration::from_millis(200);

    async fn prepare(&self, _: &Branch<u32>) -> Result<Vote, &'static str> {
        Ok(Vote::Yes)
    }

    async fn commit(&self, _: &Branch<u32>) -> Result<(), &'static str> {
        Ok(())
    }

    async fn roll_back(&self, branch: &Branch<u32>) -> Result<(), &'static str> {
        self.ask("roll back", branch.input == ROLL_BACK_HANGS).await;
        Ok(())
    }

    async fn prepared(&self) -> Result<Vec<Branch<u32>>, &'static str> {
        self.ask("prepared", true).await;
        Ok(Vec::new())
    }
}

impl Stuck {
    async fn ask(&self, what: &'static str, hangs: bool) {
        // The receiver is gone when the test ends.
        self.questions.send(what).ok();
        if hangs {
            std::future::pending::<()>().await;
        }
    }
}

struct Stage {
    _coordinator: Coordinator,
    handfast: Handfast,
    stuck: handfast::participant::ParticipantResource<Stuck>,
    asked: UnboundedReceiver<&'static str>,
}

impl Stage {
    async fn new() -> Self {
        let coordinator = Coordinator::start().await;
        let handfast = Handfast::connect(coordinator.endpoint()).await.unwrap();
        let (questions, asked) = unbounded_channel();
        let stuck =
            handfast.participant("stuck", Stuck { questions }).ask_every(Duration::from_millis(1));
        let stuck = stuck.start().unwrap();
        Self { _coordinator: coordinator, handfast, stuck, asked }
    }

    async fn asked(&mut self, what: &str) {
        let asked = async { while self.asked.recv().await.unwrap() != what {} };
        tokio::time::timeout(PATIENCE, asked).await.expect("it is asked");
    }

    async fn rolled_back(&self, input: u32) -> Xid {
        let global = self.handfast.transaction("test").begin().await.unwrap();
        let xid = global.xid().clone();
        xid.scope(async { self.stuck.join(&input).await }).await.unwrap();
        drop(tokio::spawn(global.rollback("test")));
        xid
    }
}

/// One call held the only slot for the participant's rollbacks for 5 minutes.
#[tokio::test]
async fn a_hanging_rollback_delays_no_other_global() {
    let mut stage = Stage::new().await;
    stage.rolled_back(ROLL_BACK_HANGS).await;
    stage.asked("roll back").await;
    let other = stage.rolled_back(GOOD).await;
    until("the other global ends", async || {
        matches!(stage.handfast.outcome(&other).await.unwrap(), GlobalStatus::RolledBack(_))
    })
    .await;
}

/// The participant never asked for a decision again.
#[tokio::test]
async fn a_hanging_list_is_requested_again() {
    let mut stage = Stage::new().await;
    stage.asked("prepared").await;
    let error = tokio::time::timeout(PATIENCE, stage.stuck.settle()).await;
    let error = error.expect("settling comes to an end").unwrap_err();
    assert_eq!(error.code(), "HF-PARTICIPANT-FAILED");
}
