//! A small client of the coordinator's stream that awaits replies, for what the library does not
//! do: polling for row locks. It answers phase two at once, and undoes no rows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result, bail};
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, ClientFrame, ClientMessage, Decision};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::child::Server;
use crate::load::{Connection, Shape, connect, done, hello, resource};

/// The codes of refusals after which a client polls.
const CONFLICTS: [&str; 2] = ["HF-TC-ROW-LOCKED", "HF-TC-DEADLOCK"];

/// A client. Dropping it ends its stream.
#[derive(Debug)]
pub(crate) struct Caller {
    outgoing: mpsc::UnboundedSender<ClientFrame>,
    waiting: Arc<Mutex<Waiting>>,
    reader: AbortHandle,
}

#[derive(Debug, Default)]
struct Waiting {
    last: u64,
    answers: HashMap<u64, oneshot::Sender<Answer>>,
}

impl Caller {
    /// Connects, and registers the resources of these numbers.
    pub(crate) async fn connect(server: &Server, numbers: &[usize]) -> Result<Self> {
        let mut hello = hello(0);
        hello.resources = numbers.iter().map(|number| resource(*number)).collect();
        let connection = connect(server.endpoint(), hello).await?;
        let Connection { outgoing, mut incoming } = connection;
        let waiting = Arc::new(Mutex::new(Waiting { last: 1, answers: HashMap::new() }));
        let (others, back) = (Arc::clone(&waiting), outgoing.clone());
        let reader = tokio::spawn(async move {
            // The end of the stream drops the senders, and so fails the requests that wait.
            while let Ok(Some(frame)) = incoming.message().await {
                receive(frame, &others, &back);
            }
            lock(&others).answers.clear();
        });
        Ok(Self { outgoing, waiting, reader: reader.abort_handle() })
    }

    pub(crate) async fn begin(&self) -> Result<String> {
        let answer = self.ask(Ask::Begin(Shape::begin())).await?;
        let Answer::Begin(reply) = answer else { bail!("not begun: {answer:?}") };
        Ok(reply.xid)
    }

    /// Registers a branch. Returns whether the row locks were granted.
    pub(crate) async fn register(&self, request: v1::RegisterBranchRequest) -> Result<bool> {
        let answer = self.ask(Ask::RegisterBranch(request)).await?;
        if let Answer::Rejected(refusal) = &answer
            && CONFLICTS.contains(&refusal.code.as_str())
        {
            return Ok(false);
        }
        let Answer::RegisterBranch(_) = answer else { bail!("not registered: {answer:?}") };
        Ok(true)
    }

    pub(crate) async fn end(&self, xid: &str, decision: Decision) -> Result<()> {
        let answer = self.ask(Ask::End(Shape::end(xid, decision))).await?;
        let Answer::End(_) = answer else { bail!("not ended: {answer:?}") };
        Ok(())
    }

    async fn ask(&self, ask: Ask) -> Result<Answer> {
        let (answer, answered) = oneshot::channel();
        let id = {
            let mut waiting = lock(&self.waiting);
            waiting.last += 1;
            let id = waiting.last;
            waiting.answers.insert(id, answer);
            id
        };
        let messages = vec![ClientMessage { id, body: Some(ask) }];
        self.outgoing.send(ClientFrame { messages }).context("the stream has ended")?;
        answered.await.context("the stream has ended")
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

fn receive(
    frame: v1::ServerFrame,
    waiting: &Mutex<Waiting>,
    back: &mpsc::UnboundedSender<ClientFrame>,
) {
    for message in frame.messages {
        match message.body {
            Some(Answer::PhaseTwo(call)) => {
                let body = Some(Ask::Finished(v1::PhaseTwoOutcome { branches: done(call) }));
                let messages = vec![ClientMessage { id: 0, body }];
                // The stream ends when the caller is dropped, and the reader with it.
                let _ = back.send(ClientFrame { messages });
            }
            Some(answer) => {
                if let Some(waiter) = lock(waiting).answers.remove(&message.id) {
                    // The caller may have been dropped at the end of the window.
                    let _ = waiter.send(answer);
                }
            }
            None => {}
        }
    }
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().expect("no holder of the waiters' lock panics")
}
