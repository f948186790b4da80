//! The leader's lease: a row that says which process leads, by the clock of the database.
//!
//! The lease keeps candidates from disturbing a leader, and lets them notice when it is gone. It
//! does not decide which process leads: the journal does, and it refuses a leader whose lease was
//! taken while it slept. An epoch is drawn with the lease and never again, so that a candidate that
//! sleeps before it lays its mark cannot shut out a later leader.

use std::sync::Arc;
use std::time::Duration;

use handfast_core::Epoch;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::connection::{ConnectionSlot, SqlDatabase, Value};
use super::dialect::CallError;
use super::journal::{self, Witness};
use super::micros;
use super::retries::{Failure, Retries};
use crate::store::boot_instant::{BootInstant, sleep_until};
use crate::store::{CoordinatorNode, Leader, StoreError};

/// The longest pause between two reads of the row, so that a leader that gives up the lead is
/// replaced soon.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The shortest pause.
const LOOK_PAUSE: Duration = Duration::from_millis(10);
/// How long giving up the lease may take.
const END_LIMIT: Duration = Duration::from_secs(2);

/// A process that can take the lease.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) database: SqlDatabase,
    /// The mark of this process in the row; no other process has it.
    pub(super) holder: Arc<str>,
    /// The node, as the others read it.
    pub(super) node: Arc<str>,
    pub(super) lease: Duration,
}

/// Until when the lease is held; `None` when it has ended.
type Held = Option<BootInstant>;

/// A held lease. A task renews it until this value is dropped, and then gives it up.
#[derive(Debug)]
pub(super) struct Tenure {
    pub(super) epoch: Epoch,
    held: Arc<watch::Sender<Held>>,
    /// Tells the task to give up the lease, as its end does.
    resigning: watch::Sender<()>,
}

impl Tenure {
    /// Returns until when the lease is held, as far as this process knows.
    pub(super) fn until(&self) -> Option<BootInstant> {
        *self.held.borrow()
    }

    /// Ends it at once for this process, because another one leads.
    pub(super) fn end(&self) {
        self.held.send_replace(None);
    }

    /// Completes when the lease has ended, was taken, or could not be renewed.
    pub(super) fn lost(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut held = self.held.subscribe();
        async move {
            loop {
                let Some(until) = *held.borrow_and_update() else { return };
                if until.remaining().is_zero() {
                    return;
                }
                tokio::select! {
                    changed = held.changed() => if changed.is_err() { return },
                    () = sleep_until(until) => {}
                }
            }
        }
    }

    /// Gives up the lease, and waits until that is done or a limit is reached.
    pub(super) async fn resign(&self) {
        // The lease ends here before another process can take it: nothing more is answered on the
        // strength of this lease.
        self.end();
        self.resigning.send_replace(());
        // The task ends when the lease is given up, and after a limit.
        self.resigning.closed().await;
    }
}

/// A row of the lease.
#[derive(Debug)]
struct LeaseRow {
    holder: String,
    epoch: Epoch,
    left: Duration,
    node: String,
}

impl Candidate {
    /// Waits until no other process has the lease, and takes it. Meanwhile publishes which process
    /// leads.
    ///
    /// # Errors
    ///
    /// When the database cannot be used, or lacks what this process knows of.
    pub(super) async fn gain(
        &self,
        at_least: Epoch,
        witness: &Witness,
        leader: &watch::Sender<Leader>,
    ) -> Result<Tenure, StoreError> {
        let mut slot = ConnectionSlot::new(self.database.clone());
        let mut retries = Retries::of("following");
        loop {
            match self.try_gain(&mut slot, at_least, witness, leader).await {
                Ok(Turn::Taken(epoch, until)) => return Ok(self.keep(slot, epoch, until)),
                Ok(Turn::Wait(pause)) => {
                    retries.succeeded();
                    sleep(pause).await;
                }
                Err(failure) => retries.pause(&self.database, failure).await?,
            }
        }
    }

    async fn try_gain(
        &self,
        slot: &mut ConnectionSlot,
        at_least: Epoch,
        witness: &Witness,
        leader: &watch::Sender<Leader>,
    ) -> Result<Turn, Failure> {
        // A process that follows checks this too, so that a database that went back is noticed
        // early.
        let newest = journal::check_newest(slot, witness).await?;
        let row = read(slot).await?;
        if row.holder != *self.holder && !row.left.is_zero() {
            publish(leader, row.leader());
            return Ok(Turn::Wait(row.left.clamp(LOOK_PAUSE, LOOK_EVERY)));
        }
        let at_least = at_least.max(newest.epoch.next());
        let Some((epoch, until)) = self.take(slot, at_least).await? else {
            return Ok(Turn::Wait(LOOK_PAUSE));
        };
        publish(leader, Leader::Here);
        Ok(Turn::Taken(epoch, until))
    }

    /// Takes the lease if it is free, or this process has it.
    async fn take(
        &self,
        slot: &mut ConnectionSlot,
        at_least: Epoch,
    ) -> Result<Option<(Epoch, BootInstant)>, CallError> {
        let sql = self.database.dialect.statements().take_lease;
        let holder = Value::Text(&self.holder);
        let [at_least, lease] = [at_least.0, micros(self.lease)].map(Value::Number);
        let node = Value::Text(&self.node);
        let values = [holder, at_least, lease, node, self.database.namespace(), holder];
        // Taken before the call: the database counts from a later moment.
        let sent = BootInstant::now();
        slot.execute(sql, &values).await?;
        // Some databases count the rows found, others those changed: the row itself tells.
        let row = read(slot).await?;
        Ok((row.holder == *self.holder).then(|| (row.epoch, sent.after(self.lease))))
    }

    fn keep(&self, slot: ConnectionSlot, epoch: Epoch, until: BootInstant) -> Tenure {
        let held = Arc::new(watch::Sender::new(Some(until)));
        let (resigning, resigned) = watch::channel(());
        let keeper = Keeper { candidate: self.clone(), epoch, held: Arc::clone(&held), slot };
        tokio::spawn(keeper.run(resigned));
        Tenure { epoch, held, resigning }
    }
}

/// The result of one look at the lease.
enum Turn {
    /// Another process has it.
    Wait(Duration),
    /// This process has it until then.
    Taken(Epoch, BootInstant),
}

impl LeaseRow {
    fn leader(&self) -> Leader {
        // A node of a later version may describe itself in another way.
        let node: Result<CoordinatorNode, _> = serde_json::from_str(&self.node);
        node.map_or(Leader::Unknown, |node| Leader::Elsewhere { epoch: self.epoch, node })
    }
}

fn publish(leader: &watch::Sender<Leader>, found: Leader) {
    leader.send_if_modified(|known| {
        let is_news = *known != found;
        *known = found;
        is_news
    });
}

async fn read(slot: &mut ConnectionSlot) -> Result<LeaseRow, CallError> {
    let sql = slot.database().dialect.statements().lease;
    let namespace = slot.database().namespace.clone();
    let rows = slot.fetch(sql, &[Value::Text(&namespace)]).await?;
    let missing = || CallError::Lasting("the row of tc_lease is missing: start again".to_owned());
    let mut row = rows.into_iter().next().ok_or_else(missing)?;
    let (holder, epoch) = (row.text()?, Epoch(row.number()?));
    let left = Duration::from_micros(u64::try_from(row.signed()?).unwrap_or_default());
    Ok(LeaseRow { holder, epoch, left, node: row.text()? })
}

/// The task that renews the lease, on a connection of its own: a large batch does not delay it.
struct Keeper {
    candidate: Candidate,
    epoch: Epoch,
    held: Arc<watch::Sender<Held>>,
    slot: ConnectionSlot,
}

impl Keeper {
    /// Renews the lease until it is lost, the lead is given up, or its owner is dropped.
    async fn run(mut self, mut resigned: watch::Receiver<()>) {
        loop {
            let until = *self.held.borrow();
            let Some(until) = until.filter(|until| !until.remaining().is_zero()) else {
                self.held.send_replace(None);
                break;
            };
            tokio::select! {
                biased;
                // The loop ends also when the tenure is dropped, and its sender with it.
                _ = resigned.changed() => break,
                () = self.renew_in_time(until) => {}
            }
        }
        // Also after the lease has run out here: the next process need not wait for what is left of
        // it by the clock of the database.
        if !matches!(timeout(END_LIMIT, self.give_up()).await, Ok(Ok(()))) {
            tracing::warn!(epoch = self.epoch.0, "the lease was not given up: it runs out");
        }
    }

    /// Waits until a third of the lease has passed, and renews it once.
    async fn renew_in_time(&mut self, until: BootInstant) {
        let lease = self.candidate.lease;
        let due = until.remaining().saturating_sub(lease * 2 / 3);
        sleep(due).await;
        let sent = BootInstant::now();
        // A third for the pause and a third for the answer leave time for a second attempt.
        let renewed = timeout(lease / 3, self.renew()).await;
        match renewed {
            Ok(Ok(true)) => self.prolong(sent.after(lease)),
            Ok(Ok(false)) => {
                tracing::warn!(epoch = self.epoch.0, "another process has taken the lease");
                self.held.send_replace(None);
            }
            Ok(Err(error)) => self.failed(&error.to_string()).await,
            Err(_elapsed) => self.failed("no answer").await,
        }
    }

    async fn renew(&mut self) -> Result<bool, CallError> {
        let Candidate { database, holder, lease, .. } = &self.candidate;
        let sql = database.dialect.statements().renew_lease;
        let [lease, epoch] = [micros(*lease), self.epoch.0].map(Value::Number);
        let values = [lease, database.namespace(), Value::Text(holder), epoch];
        Ok(self.slot.execute(sql, &values).await? > 0)
    }

    /// Extends the lease, unless it was ended meanwhile.
    fn prolong(&self, until: BootInstant) {
        self.held.send_if_modified(|held| {
            let is_held = held.is_some();
            *held = held.map(|_| until);
            is_held
        });
    }

    async fn failed(&mut self, error: &str) {
        let (store, epoch) = (&*self.candidate.database.name, self.epoch.0);
        tracing::warn!(store, epoch, error, "the lease was not renewed");
        sleep(self.candidate.lease / 10).await;
    }

    /// Ends the lease in the database. The connection may have broken long ago.
    async fn give_up(&mut self) -> Result<(), StoreError> {
        let Candidate { database, holder, .. } = &self.candidate;
        let sql = database.dialect.statements().end_lease;
        let epoch = Value::Number(self.epoch.0);
        let values = [database.namespace(), Value::Text(holder), epoch];
        let mut retries = Retries::of("giving up the lead");
        loop {
            match self.slot.execute(sql, &values).await {
                Ok(_) => return Ok(()),
                Err(error) => retries.pause(database, error).await?,
            }
        }
    }
}
