//! The questions to participants, and their order.

use futures::FutureExt;
use handfast::participant::ParticipantError;
use handfast::{EndError, Error, Global, GlobalStatus, Handfast, RollbackCause, TransactionError};
use handfast_test_services::until;

use crate::actor::{Actor, Answer, Held, Notes};
use crate::child::before_the_timeout;
use crate::coordinator::Coordinator;

/// A coordinator, a process, and the questions to its participants.
struct Stage {
    coordinator: Coordinator,
    handfast: Handfast,
    notes: Notes,
}

impl Stage {
    async fn new() -> Self {
        let coordinator = Coordinator::start().await;
        let handfast = Handfast::connect(coordinator.endpoint()).await.unwrap();
        Self { coordinator, handfast, notes: Notes::default() }
    }

    fn actor(&self, name: &'static str) -> Actor {
        Actor::new(name, &self.notes)
    }

    async fn begin(&self) -> Global {
        self.handfast.transaction("test").begin().await.unwrap()
    }

    async fn begin_asking_first(&self) -> Global {
        self.handfast.transaction("test").can_commit_first().begin().await.unwrap()
    }

    /// Returns the questions, with the participants of one round sorted by name.
    fn asked(&self) -> Vec<String> {
        let notes = self.notes.lock().unwrap();
        let verb = |note: &String| note.split_once(' ').unwrap().1.to_owned();
        let mut asked: Vec<String> = Vec::new();
        for round in notes.chunk_by(|one, next| verb(one) == verb(next)) {
            let mut round = round.to_vec();
            round.sort_unstable();
            asked.extend(round);
        }
        asked
    }

    async fn until(&self, global: &handfast::Xid, expected: GlobalStatus) {
        let reached = async || self.handfast.outcome(global).await.unwrap() == expected;
        until("the global comes to its end", reached).await;
    }
}

/// Makes two participants join a global.
async fn both_join(stage: &Stage, global: &Global, archive: Actor, mail: Actor) {
    let (archive, mail) = (archive.start(&stage.handfast), mail.start(&stage.handfast));
    global.scope(async { archive.join(&1).await }).await.unwrap();
    global.scope(async { mail.join(&2).await }).await.unwrap();
}

fn is_refused(error: &EndError) -> bool {
    matches!(error, TransactionError::RolledBack { by: RollbackCause::Refused, .. })
}

/// A caller that does not learn that its `join` succeeded may join again. The participant is then
/// asked once.
#[tokio::test]
async fn a_dropped_join_is_not_asked() {
    let stage = Stage::new().await;
    let global = stage.begin().await;
    let archive = stage.actor("archive").start(&stage.handfast);
    let mut joining = Box::pin(global.scope(async { archive.join(&1).await }));
    assert!((&mut joining).now_or_never().is_none());
    let xid = global.xid().clone();
    let registered = async || !stage.coordinator.show(xid.as_str()).await.branches.is_empty();
    until("it arrives", registered).await;
    drop(joining);
    global.scope(async { archive.join(&2).await }).await.unwrap();
    global.commit().await.unwrap();
    stage.until(&xid, GlobalStatus::Committed).await;
    assert_eq!(stage.asked(), ["archive prepares", "archive commits"]);
}

#[tokio::test]
async fn all_prepare_before_any_commits() {
    let stage = Stage::new().await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    both_join(&stage, &global, stage.actor("archive"), stage.actor("mail")).await;
    assert_eq!(stage.asked(), [""; 0], "no participant is asked before the commit is requested");
    global.commit().await.unwrap();
    stage.until(&xid, GlobalStatus::Committed).await;
    let expected = ["archive prepares", "mail prepares", "archive commits", "mail commits"];
    assert_eq!(stage.asked(), expected);
}

#[tokio::test]
async fn all_can_commit_before_any_prepares() {
    let stage = Stage::new().await;
    let global = stage.begin_asking_first().await;
    let xid = global.xid().clone();
    both_join(&stage, &global, stage.actor("archive"), stage.actor("mail")).await;
    global.commit().await.unwrap();
    stage.until(&xid, GlobalStatus::Committed).await;
    let asked = stage.asked();
    assert_eq!(asked[..4], ["archive could", "mail could", "archive prepares", "mail prepares"]);
    assert_eq!(asked[4..], ["archive commits", "mail commits"]);
}

#[tokio::test]
async fn a_refusal_in_the_first_round_prepares_no_participant() {
    let stage = Stage::new().await;
    let global = stage.begin_asking_first().await;
    let xid = global.xid().clone();
    let mail = stage.actor("mail").can_commit(Answer::No);
    both_join(&stage, &global, stage.actor("archive"), mail).await;
    let error = global.commit().await.unwrap_err();
    assert!(is_refused(&error), "{error:?}");
    let asked = stage.asked();
    assert!(asked.iter().all(|note| !note.contains("prepares")), "{asked:?}");
    assert!(asked.contains(&"archive rolls back".to_owned()), "{asked:?}");
    let timeline = stage.coordinator.show(xid.as_str()).await.timeline;
    assert!(timeline.iter().any(|entry| entry.what.contains("no room")), "{timeline:?}");
}

#[tokio::test]
async fn a_refused_prepare_rolls_back_the_prepared() {
    let stage = Stage::new().await;
    let global = stage.begin().await;
    let mail = stage.actor("mail").prepare(Answer::No);
    both_join(&stage, &global, stage.actor("archive"), mail).await;
    let error = global.commit().await.unwrap_err();
    assert!(is_refused(&error), "{error:?}");
    let asked = stage.asked();
    assert!(asked.iter().all(|note| !note.contains("commits")), "{asked:?}");
    assert!(asked.contains(&"archive rolls back".to_owned()), "{asked:?}");
}

#[tokio::test]
async fn a_participant_without_an_answer_is_asked_again() {
    let stage = Stage::new().await;
    let global = stage.begin_asking_first().await;
    let xid = global.xid().clone();
    let archive = stage.actor("archive").can_commit(Answer::Fails).prepare(Answer::Fails);
    both_join(&stage, &global, archive, stage.actor("mail")).await;
    global.commit().await.unwrap();
    stage.until(&xid, GlobalStatus::Committed).await;
    let asked = stage.asked();
    for twice in ["archive could", "archive prepares"] {
        assert_eq!(asked.iter().filter(|note| *note == twice).count(), 2, "{asked:?}");
    }
}

#[tokio::test]
async fn a_missing_vote_never_commits() {
    let stage = Stage::new().await;
    let held = std::sync::Arc::new(Held::default());
    let global = before_the_timeout(async |timeout| {
        let short = stage.handfast.transaction("test").timeout(timeout);
        let global = short.begin().await.unwrap();
        let archive = stage.actor("archive").start(&stage.handfast);
        let mail = stage.actor("mail").prepare(Answer::When(held.clone())).start(&stage.handfast);
        let joining = async {
            archive.join(&1).await.ok()?;
            mail.join(&2).await.ok()
        };
        global.scope(joining).await.map(|_joined| global)
    });
    let global = global.await;
    let error = global.commit().await.unwrap_err();
    let timed_out =
        matches!(error, TransactionError::RolledBack { by: RollbackCause::Timeout, .. });
    assert!(timed_out, "{error:?}");
    assert!(stage.asked().iter().all(|note| !note.contains("commits")));
}

#[tokio::test]
async fn joining_during_the_votes_is_refused() {
    let stage = Stage::new().await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    let held = std::sync::Arc::new(Held::default());
    let mail = stage.actor("mail").prepare(Answer::When(held.clone())).start(&stage.handfast);
    xid.scope(async { mail.join(&1).await }).await.unwrap();
    let committing = tokio::spawn(async move { global.commit().await });
    held.waits.notified().await;
    let error = xid.scope(async { mail.join(&2).await }).await.unwrap_err();
    assert_eq!(error.code(), "HF-TC-VOTING");
    held.goes_on.notify_one();
    committing.await.unwrap().unwrap();
}

/// The coordinator forgets the votes that it had received, and the client requests the commit
/// again.
#[tokio::test]
async fn a_coordinator_killed_during_the_votes_goes_on() {
    let mut stage = Stage::new().await;
    let global = stage.begin_asking_first().await;
    let xid = global.xid().clone();
    let held = std::sync::Arc::new(Held::default());
    let mail = stage.actor("mail").prepare(Answer::When(held.clone()));
    both_join(&stage, &global, stage.actor("archive"), mail).await;
    let committing = tokio::spawn(async move { global.commit().await });
    held.waits.notified().await;
    stage.coordinator.kill().await;
    held.goes_on.notify_one();
    stage.coordinator.restart().await;
    committing.await.unwrap().unwrap();
    stage.until(&xid, GlobalStatus::Committed).await;
    let asked = stage.asked();
    assert_eq!(asked.iter().filter(|note| *note == "mail could").count(), 2, "{asked:?}");
}

#[tokio::test]
async fn invalid_joins_are_refused() {
    let stage = Stage::new().await;
    let archive = stage.actor("archive").start(&stage.handfast);
    let error = archive.join(&1).await.unwrap_err();
    let required = matches!(error, ParticipantError::Coordinator(Error::TransactionRequired));
    assert!(required, "{error:?}");
    let long: &'static str = "a".repeat(201).leak();
    for name in ["", long] {
        let actor = Actor::new(name, &stage.notes);
        let error = stage.handfast.participant(name, actor).start().unwrap_err();
        assert_eq!(error.code(), "HF-CFG-CLIENT");
    }
}
