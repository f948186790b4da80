//! A participant that records the questions it is asked, and answers as the test wants.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use handfast::Handfast;
use handfast::participant::{Branch, Participant, ParticipantResource, Vote};
use tokio::sync::Notify;

/// The questions to all actors of a test, in order, such as `archive prepares`.
pub(crate) type Notes = Arc<Mutex<Vec<String>>>;

/// The answer to a question.
#[derive(Clone)]
pub(crate) enum Answer {
    No,
    Fails,
    /// Waits until the test releases it, and reports that it is waiting.
    When(Arc<Held>),
}

#[derive(Default)]
pub(crate) struct Held {
    pub(crate) waits: Notify,
    pub(crate) goes_on: Notify,
}

pub(crate) struct Actor {
    name: &'static str,
    notes: Notes,
    /// The answers to the first questions. Later ones are answered with yes.
    can_commit: Mutex<VecDeque<Answer>>,
    prepare: Mutex<VecDeque<Answer>>,
}

impl Actor {
    pub(crate) fn new(name: &'static str, notes: &Notes) -> Self {
        let notes = Arc::clone(notes);
        Self { name, notes, can_commit: Mutex::default(), prepare: Mutex::default() }
    }

    pub(crate) fn can_commit(self, answer: Answer) -> Self {
        self.can_commit.lock().unwrap().push_back(answer);
        self
    }

    pub(crate) fn prepare(self, answer: Answer) -> Self {
        self.prepare.lock().unwrap().push_back(answer);
        self
    }

    pub(crate) fn start(self, handfast: &Handfast) -> ParticipantResource<Self> {
        handfast.participant(self.name, self).start().unwrap()
    }

    fn note(&self, what: &str) {
        self.notes.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

async fn answer(queue: &Mutex<VecDeque<Answer>>) -> Result<Vote, &'static str> {
    let next = queue.lock().unwrap().front().cloned();
    // A held participant is asked again meanwhile, and must not answer that either.
    if let Some(Answer::When(held)) = &next {
        held.waits.notify_one();
        held.goes_on.notified().await;
    }
    queue.lock().unwrap().pop_front();
    match next {
        None | Some(Answer::When(_)) => Ok(Vote::Yes),
        Some(Answer::No) => Ok(Vote::No("no room".to_owned())),
        Some(Answer::Fails) => Err("not this time"),
    }
}

impl Participant for Actor {
    type Input = u32;
    type Error = &'static str;

    async fn can_commit(&self, _branch: &Branch<u32>) -> Result<Vote, &'static str> {
        self.note("could");
        answer(&self.can_commit).await
    }

    async fn prepare(&self, _branch: &Branch<u32>) -> Result<Vote, &'static str> {
        self.note("prepares");
        answer(&self.prepare).await
    }

    async fn commit(&self, _branch: &Branch<u32>) -> Result<(), &'static str> {
        self.note("commits");
        Ok(())
    }

    async fn roll_back(&self, _branch: &Branch<u32>) -> Result<(), &'static str> {
        self.note("rolls back");
        Ok(())
    }

    async fn prepared(&self) -> Result<Vec<Branch<u32>>, &'static str> {
        Ok(Vec::new())
    }
}
