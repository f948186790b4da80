//! The checks when the faults are over: every operation has ended, nothing is left over, nothing is
//! lost, and the reports agree with the databases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use handfast::{GlobalStatus, Handfast, Xid};
use handfast_server::admin::model::ServerStatus;
use tokio::time::{Instant, sleep};

use crate::history::{self, Element, List, Operation, Outcome};
use crate::stage::{Done, RunningSystem};
use crate::work::{CENTS, DATABASES, Task, total};

/// The time within which phase two must end after the faults.
const SETTLED_WITHIN: Duration = Duration::from_secs(120);
const ASK_EVERY: Duration = Duration::from_millis(50);
/// Questions to the coordinator at a time.
const QUESTIONS: usize = 64;

/// A guard row: harmless where it bars a branch of a global that was rolled back, or has come after
/// the undo row of a committed branch was deleted. The second is that of a process that was stopped
/// while it was asked whether a last branch has committed, and of which another process was asked
/// meanwhile. That no committed branch was barred is what accounts, receipts and lists show.
const GUARD: u8 = 1;
/// An undo log: none may be left, but for a branch that was all of its global and has committed,
/// where a killed coordinator has lost it and its process was killed too.
const LOG: u8 = 0;

/// The result of a run.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Operations by outcome, as their services know it.
    pub outcomes: BTreeMap<&'static str, usize>,
    /// Codes of what kept operations from committing.
    pub reasons: BTreeMap<String, usize>,
    /// The number of committed globals that read the total of all accounts.
    pub totals: usize,
    /// The number of committed globals that read a list.
    pub list_reads: usize,
    /// Elements in all lists in the end.
    pub elements: usize,
    /// Guard rows left, which the daily sweep takes.
    pub guards: usize,
    /// Committed globals that killed coordinators have lost.
    pub lost: usize,
    /// Everything that does not hold.
    pub violations: Vec<String>,
}

impl RunningSystem {
    /// Lets everything come to its end and judges it.
    ///
    /// # Errors
    /// When a part cannot be asked.
    pub(crate) async fn judge(&mut self) -> Result<Verdict> {
        self.finish_services().await?;
        let mut verdict = Verdict::default();
        self.settle(&mut verdict).await?;
        let operations = self.record.operations();
        count(&operations, &mut verdict);
        check_totals(&operations, &mut verdict);
        self.check_accounts(&operations, &mut verdict).await?;
        let lists = self.check_lists(&operations, &mut verdict).await?;
        let observer = self.observer().await?;
        self.check_decisions(&observer, &operations, &lists, &mut verdict).await?;
        self.check_guards(&observer, &mut verdict).await?;
        observer.close().await;
        Ok(verdict)
    }

    /// Waits, within limits, until nothing is left over, and records what is.
    async fn settle(&self, verdict: &mut Verdict) -> Result<()> {
        let until = Instant::now() + SETTLED_WITHIN;
        let observer = self.observer().await?;
        loop {
            let left = self.left(&observer).await?;
            if left.is_empty() || Instant::now() >= until {
                verdict.violations.extend(left);
                observer.close().await;
                return Ok(());
            }
            // A poll: databases do not report when their last undo log is deleted.
            sleep(ASK_EVERY).await;
        }
    }

    async fn left(&self, observer: &Handfast) -> Result<Vec<String>> {
        let mut left = unfinished(&self.status().await?);
        for (database, pool) in self.pools.iter().enumerate() {
            let mut logs = pool.undo_rows(LOG).await?;
            for xid in self.record.globals_of_one_branch(&logs) {
                if observer.outcome(&xid.parse()?).await? == GlobalStatus::Unknown {
                    logs.retain(|left| *left != xid);
                }
            }
            if let Some(first) = logs.first() {
                let count = logs.len();
                left.push(format!("{count} undo logs in database {database}, of {first}"));
            }
        }
        Ok(left)
    }

    /// Checks that each account agrees with its receipts, and that each transfer has both receipts.
    async fn check_accounts(
        &self,
        operations: &BTreeMap<u64, Done>,
        verdict: &mut Verdict,
    ) -> Result<()> {
        let mut sum = 0;
        let mut receipts: [BTreeMap<i64, i64>; DATABASES] = Default::default();
        for (database, pool) in self.pools.iter().enumerate() {
            let accounts = pool.accounts().await?;
            sum += accounts.values().sum::<i64>();
            let mut expected: BTreeMap<i64, i64> =
                accounts.keys().map(|account| (*account, CENTS)).collect();
            for (transfer, account, cents) in pool.receipts().await? {
                *expected.entry(account).or_default() += cents;
                receipts[database].insert(transfer, cents);
            }
            if accounts != expected {
                verdict.violations.push(format!(
                    "database {database}: accounts {accounts:?}, by receipts {expected:?}"
                ));
            }
        }
        if sum != total() {
            verdict.violations.push(format!("money: {sum} in the end, {} before", total()));
        }
        check_receipts(operations, &receipts, verdict);
        Ok(())
    }

    async fn check_lists(
        &self,
        operations: &BTreeMap<u64, Done>,
        verdict: &mut Verdict,
    ) -> Result<BTreeMap<List, Vec<Element>>> {
        let mut last = BTreeMap::new();
        for (database, pool) in self.pools.iter().enumerate() {
            last.extend(pool.lists(database).await?);
        }
        verdict.elements = last.values().map(Vec::len).sum();
        let operations: Vec<Operation> =
            operations.iter().map(|(element, done)| done.operation(*element)).collect();
        let anomalies = history::judge(&operations, &last);
        verdict.violations.extend(anomalies.iter().map(ToString::to_string));
        Ok(last)
    }

    /// Checks that the outcomes which the coordinator remembers agree with the databases.
    async fn check_decisions(
        &self,
        observer: &Handfast,
        operations: &BTreeMap<u64, Done>,
        lists: &BTreeMap<List, Vec<Element>>,
        verdict: &mut Verdict,
    ) -> Result<()> {
        let appended: BTreeSet<Element> = lists.values().flatten().copied().collect();
        let known = operations
            .iter()
            .filter_map(|(operation, done)| Some((*operation, done, done.xid.clone()?)));
        let asked = known.map(async |(operation, done, xid)| {
            let status = observer.outcome(&xid.parse::<Xid>()?).await?;
            anyhow::Ok((operation, done, status))
        });
        let reported: Vec<(u64, &Done, GlobalStatus)> =
            stream::iter(asked.collect::<Vec<_>>()).buffered(QUESTIONS).try_collect().await?;
        for (operation, done, status) in reported {
            let is_there = appended.contains(&operation);
            // Its branch is all of it, and the database says how it has ended.
            let is_lost = status == GlobalStatus::Unknown && is_there && done.task.has_one_branch();
            verdict.lost += usize::from(is_lost);
            let committed =
                is_lost || matches!(status, GlobalStatus::Committed | GlobalStatus::Committing);
            let as_told = match done.outcome {
                Outcome::Committed => committed,
                Outcome::RolledBack => !committed,
                Outcome::Unknown => true,
            };
            let appends = matches!(&done.task, Task::Append { .. });
            if !as_told || (appends && committed != is_there) {
                verdict.violations.push(format!(
                    "operation {operation}: reported {:?}, decided {status}, in a list: {}",
                    done.outcome, is_there
                ));
            }
        }
        Ok(())
    }

    /// Checks that no guard row is of a committed global: it would have cost the global a branch.
    async fn check_guards(&self, observer: &Handfast, verdict: &mut Verdict) -> Result<()> {
        for pool in &self.pools {
            for xid in pool.undo_rows(GUARD).await? {
                verdict.guards += 1;
                let status = observer.outcome(&xid.parse()?).await.context("asking for a guard")?;
                if !matches!(status, GlobalStatus::RolledBack(_) | GlobalStatus::Committed) {
                    verdict.violations.push(format!("a guard row of {xid}, which is {status}"));
                }
            }
        }
        Ok(())
    }
}

fn unfinished(status: &ServerStatus) -> Vec<String> {
    let counts = [
        ("active", status.active),
        ("committing", status.committing),
        ("rolling back", status.rolling_back),
        ("in need of an operator", status.needs_operator),
        ("locks", status.locks),
        ("waiters", status.waiters),
        ("pending branches", status.pending_branches),
    ];
    let left = counts.into_iter().filter(|(_, count)| *count > 0);
    left.map(|(what, count)| format!("left at the coordinator: {count} {what}")).collect()
}

fn count(operations: &BTreeMap<u64, Done>, verdict: &mut Verdict) {
    for done in operations.values() {
        let outcome = match done.outcome {
            Outcome::Committed => "committed",
            Outcome::RolledBack => "rolled back",
            Outcome::Unknown => "unknown",
        };
        *verdict.outcomes.entry(outcome).or_default() += 1;
        if let Some((code, _)) = done.why.split_once(": ") {
            *verdict.reasons.entry(code.to_owned()).or_default() += 1;
        }
        if done.outcome == Outcome::Committed {
            verdict.list_reads += done.seen.lists.len();
        }
    }
}

/// Checks that no read under global locks saw money in two places or in none.
fn check_totals(operations: &BTreeMap<u64, Done>, verdict: &mut Verdict) {
    let committed = operations.iter().filter(|(_, done)| done.outcome == Outcome::Committed);
    for (operation, seen) in committed.filter_map(|(id, done)| Some((id, done.seen.total?))) {
        verdict.totals += 1;
        if seen != total() {
            verdict.violations.push(format!("operation {operation} saw a total of {seen}"));
        }
    }
}

fn check_receipts(
    operations: &BTreeMap<u64, Done>,
    receipts: &[BTreeMap<i64, i64>; DATABASES],
    verdict: &mut Verdict,
) {
    let transfers = receipts.iter().flat_map(BTreeMap::keys).collect::<BTreeSet<_>>();
    for transfer in transfers {
        let [first, second] = receipts.each_ref().map(|receipts| receipts.get(transfer).copied());
        let whole = first.zip(second).is_some_and(|(first, second)| first + second == 0);
        if !whole {
            verdict.violations.push(format!("transfer {transfer} is torn: {first:?}, {second:?}"));
        }
    }
    for (operation, done) in operations {
        let Task::Transfer { .. } = done.task else { continue };
        let id = i64::try_from(*operation).expect("operations are numbered from 1");
        let there = receipts.iter().any(|receipts| receipts.contains_key(&id));
        match (done.outcome, there) {
            (Outcome::Committed, false) => {
                verdict.violations.push(format!("transfer {operation} was acknowledged and lost"));
            }
            (Outcome::RolledBack, true) => {
                verdict.violations.push(format!("transfer {operation} was rolled back and stays"));
            }
            (Outcome::Committed | Outcome::Unknown, _) | (Outcome::RolledBack, false) => {}
        }
    }
}
