//! The reports of all services.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::sync::watch;

use crate::event::{ReadValues, ServiceEvent, now};
use crate::history::{Operation, Outcome};
use crate::work::Task;

/// The operations of all services, by number.
#[derive(Debug)]
pub struct Record {
    operations: Mutex<BTreeMap<u64, Done>>,
    /// When the operation began that committed last.
    committed: watch::Sender<u64>,
    /// The number of committed operations that read a total or a list.
    reads: watch::Sender<u64>,
}

/// An operation as far as it was reported.
#[derive(Clone, Debug)]
pub struct Done {
    /// The operation.
    pub task: Task,
    /// When it began.
    pub began: u64,
    /// The time of its end, if that was reported.
    pub ended: Option<u64>,
    /// How.
    pub outcome: Outcome,
    /// Why it did not commit.
    pub why: String,
    /// Its global, if one was begun and reported.
    pub xid: Option<String>,
    /// The values read.
    pub seen: ReadValues,
}

impl Default for Record {
    fn default() -> Self {
        let (committed, reads) = (watch::channel(0).0, watch::channel(0).0);
        Self { operations: Mutex::default(), committed, reads }
    }
}

impl Record {
    /// Records a report.
    pub fn note(&self, event: ServiceEvent) {
        let mut operations = self.lock();
        match event {
            ServiceEvent::Began { operation, at, task } => {
                let (outcome, seen) = (Outcome::Unknown, ReadValues::default());
                let (why, xid, ended) = (String::new(), None, None);
                let done = Done { task, began: at, ended, outcome, why, xid, seen };
                operations.insert(operation, done);
            }
            ServiceEvent::Begun { operation, xid } => {
                if let Some(done) = operations.get_mut(&operation) {
                    done.xid = Some(xid);
                }
            }
            ServiceEvent::Ended { operation, at, outcome, why, seen } => {
                let Some(done) = operations.get_mut(&operation) else { return };
                (done.ended, done.outcome, done.why, done.seen) = (Some(at), outcome, why, seen);
                if outcome == Outcome::Committed {
                    let (began, reads) = (done.began, done.seen.is_something());
                    drop(operations);
                    self.committed.send_modify(|last| *last = began.max(*last));
                    self.reads.send_modify(|count| *count += u64::from(reads));
                }
            }
            ServiceEvent::Ready | ServiceEvent::Finished => {}
        }
    }

    /// Waits until an operation that begins from here on has committed.
    pub(super) async fn until_later_operation_commits(&self, within: Duration) -> Result<()> {
        let (start, mut committed) = (now(), self.committed.subscribe());
        let commit = committed.wait_for(|began| *began > start);
        let in_time = tokio::time::timeout(within, commit).await.is_ok();
        ensure!(in_time, "nothing commits any more:\n{}", self.last_reasons());
        Ok(())
    }

    /// Waits until an operation that reads a total or a list has committed, whenever it began.
    pub(super) async fn until_read(&self, within: Duration) -> Result<()> {
        let mut reads = self.reads.subscribe();
        let in_time =
            tokio::time::timeout(within, reads.wait_for(|count| *count > 0)).await.is_ok();
        ensure!(in_time, "nothing is read:\n{}", self.last_reasons());
        Ok(())
    }

    /// Returns what is known of every operation.
    #[must_use]
    pub fn operations(&self) -> BTreeMap<u64, Done> {
        self.lock().clone()
    }

    /// Returns those of the globals that have one branch and no more.
    pub(crate) fn globals_of_one_branch(&self, xids: &[String]) -> Vec<String> {
        let operations = self.lock();
        let single = operations.values().filter(|done| done.task.has_one_branch());
        let single: BTreeSet<&str> = single.filter_map(|done| done.xid.as_deref()).collect();
        xids.iter().filter(|xid| single.contains(xid.as_str())).cloned().collect()
    }

    /// Returns why the last operations failed.
    fn last_reasons(&self) -> String {
        let operations = self.lock();
        let reasons = operations.values().rev().filter(|done| !done.why.is_empty());
        reasons.take(5).map(|done| format!("  {}\n", done.why)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Done>> {
        self.operations.lock().expect("no holder of the record panics")
    }
}

impl Done {
    /// Returns an operation in the form that the judge of histories takes.
    #[must_use]
    pub fn operation(&self, element: u64) -> Operation {
        let appends = match &self.task {
            Task::Append { appends, .. } => appends.clone(),
            Task::Transfer { .. } | Task::Total | Task::Read { .. } => [].into(),
        };
        Operation {
            element,
            began: self.began,
            ended: self.ended,
            outcome: self.outcome,
            appends,
            reads: self.seen.lists.clone(),
        }
    }
}
