//! The coordinator's state, for the messages of assertions.

use std::fmt;
use std::time::{Duration, Instant};

use handfast_core::{
    BranchRecord, BranchState, Coordinator, DirtyRow, GlobalFilter, LockFilter, Mode, PageBounds,
    RowStanding, SagaRecord, SagaStatus, StatusKind, Xid, display_row_key,
};

use crate::database::UndoRow;
use crate::kit::TestKit;

/// The most that a message lists of one kind (BOUNDED).
const BOUNDS: PageBounds = PageBounds { items_max: 20, scanned_max: 100_000 };
/// How much of an undo log is shown.
const LOG_CHARS_MAX: usize = 300;
/// How long to ask a coordinator that is being started again.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// A global or saga, as it was found.
#[derive(Debug)]
pub(crate) struct Lookup {
    pub(crate) status: StatusKind,
    /// Whether the coordinator is at work on it, so that it changes without anything else.
    pub(crate) goes_on: bool,
    text: String,
}

/// The things that should not be left.
#[derive(Debug)]
pub(crate) struct Remains {
    undo_rows: Vec<UndoRow>,
    locks: Vec<String>,
    globals: Vec<Lookup>,
}

impl Lookup {
    /// Looks a global or saga up.
    pub(crate) async fn of(kit: &TestKit, xid: Xid) -> Self {
        ask(kit, move |coordinator| look_up(coordinator, xid)).await
    }
}

impl fmt::Display for Lookup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Remains {
    /// Looks at the coordinator.
    pub(crate) async fn look(kit: &TestKit, undo_rows: Vec<UndoRow>) -> Self {
        let look = |coordinator: &Coordinator| {
            let locks = coordinator.locks(&LockFilter::default(), None, BOUNDS).items;
            let locks = locks.iter().map(|lock| {
                let holders: Vec<_> = lock.holders.iter().map(|it| it.xid.to_string()).collect();
                let key = display_row_key(&lock.key);
                format!("{} {key}, held by xid {}", lock.table, holders.join(", "))
            });
            let globals = coordinator.globals(&GlobalFilter::default(), None, BOUNDS).items;
            let open = globals.into_iter().filter(|it| !is_end(it.status.kind()));
            let globals = open.map(|it| look_up(coordinator, it.record.xid));
            (locks.collect(), globals.collect())
        };
        let (locks, globals) = ask(kit, look).await;
        Self { undo_rows, locks, globals }
    }

    pub(crate) fn is_nothing(&self) -> bool {
        self.undo_rows.is_empty() && self.locks.is_empty() && self.globals.is_empty()
    }

    /// Whether the coordinator is at work on something.
    pub(crate) fn goes_on(&self) -> bool {
        self.globals.iter().any(|global| global.goes_on)
    }
}

impl fmt::Display for Remains {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for UndoRow { xid, branch, log } in &self.undo_rows {
            let log: String = log.chars().take(LOG_CHARS_MAX).collect();
            writeln!(f, "  undo row of xid {xid}, branch {branch}: {log}")?;
        }
        for lock in &self.locks {
            writeln!(f, "  lock of row {lock}")?;
        }
        for global in &self.globals {
            writeln!(f, "{global}")?;
        }
        Ok(())
    }
}

/// Asks the coordinator, also if it is just being started again.
async fn ask<T: Send + 'static>(
    kit: &TestKit,
    look: impl Fn(&Coordinator) -> T + Clone + Send + 'static,
) -> T {
    let until = Instant::now() + ANSWERS_WITHIN;
    loop {
        let engine = kit.coordinator.engine().await;
        let engine = engine.unwrap_or_else(|reason| panic!("the coordinator is dead: {reason}"));
        match engine.view(look.clone()).await {
            Ok(found) => return found,
            Err(error) => {
                assert!(Instant::now() < until, "the coordinator does not answer: {error}");
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }
}

fn is_end(status: StatusKind) -> bool {
    matches!(status, StatusKind::Committed | StatusKind::RolledBack | StatusKind::Unknown)
}

fn look_up(coordinator: &Coordinator, xid: Xid) -> Lookup {
    if let Some(saga) = coordinator.saga(xid) {
        let status = coordinator.global(xid).map_or(StatusKind::Unknown, |it| it.status.kind());
        let goes_on = matches!(saga.status(), SagaStatus::Running | SagaStatus::Compensating);
        return Lookup { status, goes_on, text: of_saga(saga) };
    }
    let Some(global) = coordinator.global(xid) else {
        let text = "  the coordinator does not know it: it was never begun, or had no branch and \
                    was ended, or had none when the coordinator died"
            .to_owned();
        return Lookup { status: StatusKind::Unknown, goes_on: false, text };
    };
    let mut text = format!("  {} {}: {}", global.record.name, xid, global.status);
    for branch in &global.branches {
        text.push_str(&of_branch(branch));
    }
    if global.status.kind() == StatusKind::Active {
        text.push_str(
            "\n  nothing has decided it: the service has not ended it, and its timeout has not \
             passed (TestKit::advance)",
        );
    }
    let status = global.status.kind();
    let goes_on = matches!(status, StatusKind::Committing | StatusKind::RollingBack);
    Lookup { status, goes_on, text }
}

fn of_branch(branch: &BranchRecord) -> String {
    let state = match &branch.state {
        BranchState::Registered | BranchState::Deciding | BranchState::PhaseOneDone => {
            "phase two is not done".to_owned()
        }
        BranchState::Refused(error, rows) => {
            let rows: String = rows.listed.iter().map(of_row).collect();
            format!("refused: {error}{rows}")
        }
        BranchState::Resolved(_) => "an operator has resolved it".to_owned(),
        BranchState::Finished(_) => "finished".to_owned(),
    };
    let failure = branch.last_failure.as_ref().map(|(_, failure)| {
        format!("\n      {} failed attempts, the last: {failure}", branch.attempts)
    });
    format!(
        "\n    {} branch {} on {}: {state}{}",
        mode(branch.mode),
        branch.id,
        branch.resource,
        failure.unwrap_or_default()
    )
}

fn of_row(row: &DirtyRow) -> String {
    let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "NULL".to_owned());
    let columns: String = row
        .columns
        .iter()
        .map(|column| {
            let (before, after) = (value(&column.before), value(&column.after));
            let current = value(&column.current);
            format!(" {} {before} -> {after}, now {current};", column.name)
        })
        .collect();
    let standing = match row.standing {
        RowStanding::Dirty => "dirty",
        RowStanding::Clean => "clean",
        RowStanding::Restored => "restored",
    };
    format!("\n      {standing} row {} {}:{columns}", row.table, row.key)
}

fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::At => "AT",
        Mode::Tcc => "TCC",
        Mode::Xa => "XA",
        Mode::Saga => "saga",
        Mode::TwoPhase => "participant's",
    }
}

fn of_saga(saga: &SagaRecord) -> String {
    let mut text = format!("  saga {} of key {}: {}", saga.xid, saga.key, saga.status());
    for (at, step) in saga.steps.iter().enumerate() {
        let name = saga.definition.steps.get(at).map_or("?", |it| &it.name);
        text.push_str(&format!("\n    step {name}: {}", step.state));
        if let Some((_, failure)) = &step.last_failure {
            text.push_str(&format!(", {} failed attempts, the last: {failure}", step.attempts));
        }
    }
    text
}
