//! Plays one global: the same statements with and without the library, then its end on both sides.

use futures::FutureExt;
use handfast::{AtError, AtTransaction, Global, GlobalStatus};
use sqlx::Transaction;
use sqlx::error::ErrorKind;

use crate::database::{Answer, Twin};
use crate::finding::{Finding, differences};
use crate::scene::{Scene, Shown, Snapshot, plain_in};
use crate::schema::Schema;
use crate::script::{BranchEnd, End, Script, Step};
use crate::statement::{Kind, Statement};
use crate::tally::{Answered, Tally};
use crate::witness::Watch;
use crate::{after, script};

/// A run over one set of tables.
pub(crate) struct Play<'s, DB: Twin> {
    pub(crate) scene: &'s Scene<DB>,
    pub(crate) schema: &'s Schema,
    pub(crate) tally: &'s mut Tally,
}

/// Whether a local transaction can go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Continuation {
    On,
    /// The local transaction can only be rolled back.
    Wrong,
}

/// The two transactions that run the same statements.
struct Pair<'p, DB: Twin> {
    ours: &'p mut AtTransaction<'static, DB>,
    plain: &'p mut Transaction<'static, DB>,
    /// The changes that SQLite reports of the first.
    watch: &'p mut Watch,
}

impl<DB: Twin> Play<'_, DB> {
    /// Plays a script to its end and compares.
    pub(crate) async fn global(&mut self, script: &Script) -> Result<(), Finding> {
        let before = self.scene.ours(self.schema, Shown::All).await;
        let mut plain = self.scene.plain.begin().await.unwrap();
        let global = self.scene.begin().await;
        let played = self.branches(script, &global, &mut plain).await;
        if let Err(finding) = played {
            // The global keeps locks of tables that are not used again.
            drop(global);
            return Err(finding);
        }
        let between = self.scene.ours(self.schema, Shown::Alike).await;
        let without = plain_in(&mut plain, self.schema, Shown::Alike).await;
        differences("the tables after the statements", self.schema, &without, &between)?;
        match script.end {
            End::Commit => self.commit(global, plain).await?,
            End::RollBack { dirtied } => {
                plain.rollback().await.unwrap();
                self.roll_back(script, global, before, dirtied).await?;
                DB::align(&self.scene.ours, &self.scene.plain).await;
            }
        }
        after::no_trace_is_left(self.scene).await
    }

    async fn branches(
        &mut self,
        script: &Script,
        global: &Global,
        plain: &mut Transaction<'static, DB>,
    ) -> Result<(), Finding> {
        for branch in &script.branches {
            DB::control(plain, "SAVEPOINT whole_branch").await.unwrap();
            let ours = global.scope(self.scene.resource.begin()).await;
            let mut ours = ours.unwrap();
            let mut watch = self.scene.witness.watch();
            let mut end = branch.end;
            for step in &branch.steps {
                let pair = Pair { ours: &mut ours, plain, watch: &mut watch };
                if self.step(step, pair).await? == Continuation::Wrong {
                    end = BranchEnd::RollBack;
                    break;
                }
            }
            match end {
                BranchEnd::Commit => {
                    let rows = watch.rows(self.schema)?;
                    let committed = ours.commit().await;
                    committed.map_err(|error| Finding::new("a branch does not commit", error))?;
                    let judged = watch.judge(self.scene, self.schema, global.xid(), &rows);
                    self.tally.witnessed += judged.await?;
                }
                BranchEnd::RollBack => {
                    ours.rollback().await.unwrap();
                    DB::control(plain, "ROLLBACK TO SAVEPOINT whole_branch").await.unwrap();
                }
            }
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step, pair: Pair<'_, DB>) -> Result<Continuation, Finding> {
        let verb = match step {
            Step::Statement(statement) => return self.statement(statement, pair).await,
            Step::Savepoint(name) => {
                pair.ours.savepoint(name).await.unwrap();
                pair.watch.savepoint(name);
                format!("SAVEPOINT {name}")
            }
            Step::RollBackTo(name) => {
                pair.ours.rollback_to(name).await.unwrap();
                pair.watch.roll_back_to(name);
                format!("ROLLBACK TO SAVEPOINT {name}")
            }
            Step::Release(name) => {
                pair.ours.release_savepoint(name).await.unwrap();
                pair.watch.release(name);
                format!("RELEASE SAVEPOINT {name}")
            }
        };
        DB::control(pair.plain, &verb).await.unwrap();
        Ok(Continuation::On)
    }

    /// Runs a statement on both sides, which must give the same answer unless the library refuses
    /// it.
    async fn statement(
        &mut self,
        statement: &Statement,
        mut pair: Pair<'_, DB>,
    ) -> Result<Continuation, Finding> {
        let mark = pair.watch.mark();
        let ours = shielded(&mut pair, statement).await;
        let ours = match ours {
            Err(error) if AtError::of(&error).is_some_and(|it| DB::may_withdraw(statement, it)) => {
                self.tally.count(statement.kind, Answered::Withdrawn);
                // It has used up generated numbers, which no rollback returns. Only that counts of
                // the twin: both are rolled back, whatever it answers.
                shielded_plain(pair.plain, statement).await.ok();
                return Ok(Continuation::Wrong);
            }
            Err(error) if is_refusal(&error) => {
                let code = AtError::of(&error).map_or_else(String::new, |e| e.code().to_owned());
                *self.tally.refusals.entry(code).or_default() += 1;
                self.tally.count(statement.kind, Answered::Refused);
                pair.watch.expect_nothing_since(mark, "a refused statement changes a row")?;
                return Ok(Continuation::On);
            }
            answered => answered,
        };
        if script::must_be_refused(statement) {
            return Err(Finding::new("a forbidden statement is not refused", &ours));
        }
        let plain = shielded_plain(pair.plain, statement).await;
        let came = compare_answers(statement, &ours, &plain)?;
        if came == Answered::Failed {
            pair.watch.forget_since(mark);
        } else if statement.reads() {
            pair.watch.expect_nothing_since(mark, "a read changes a row")?;
        }
        self.tally.count(statement.kind, came);
        Ok(Continuation::On)
    }

    async fn commit(
        &mut self,
        global: Global,
        plain: Transaction<'static, DB>,
    ) -> Result<(), Finding> {
        let xid = global.xid().clone();
        self.scene.witness.forget();
        global.commit().await.unwrap();
        plain.commit().await.unwrap();
        let status = self.scene.await_status(&xid, |s| s == GlobalStatus::Committed).await;
        status.map_err(|status| Finding::new("a global does not commit", status))?;
        self.scene.witness.expect_own_tables_only(self.schema)?;
        let ours = self.scene.ours(self.schema, Shown::Alike).await;
        let plain = self.scene.plain(self.schema, Shown::Alike).await;
        self.tally.committed += 1;
        differences("the tables after the commit", self.schema, &plain, &ours)
    }

    async fn roll_back(
        &mut self,
        script: &Script,
        global: Global,
        before: Snapshot,
        dirtied: bool,
    ) -> Result<(), Finding> {
        let xid = global.xid().clone();
        let left = self.scene.ours(self.schema, Shown::All).await;
        let changed = after::changed_rows(&before, &left);
        self.tally.rows_undone += changed;
        after::rows_are_locked(self.scene, self.schema, &xid, &before, &left).await?;
        let random = script.random.clone();
        let mut touched = after::Touched { scene: self.scene, schema: self.schema, random };
        if let Some(lock_refused) = touched.other_globals_are_refused(&before, &left).await? {
            self.tally.lock_refused += lock_refused;
        }
        if dirtied && touched.dirty(&before, &left).await {
            self.tally.dirtied += 1;
            after::an_operator_is_needed(self.scene, self.schema, global).await?;
        } else {
            global.rollback("differential").await.ok();
            let done = |status| matches!(status, GlobalStatus::RolledBack(_));
            if self.scene.await_status(&xid, done).await.is_err() {
                let why = after::refusal(self.scene, &xid).await;
                return Err(Finding::new("a global does not roll back", why));
            }
        }
        let undone = self.scene.ours(self.schema, Shown::All).await;
        self.tally.rolled_back += 1;
        differences("the tables after the rollback", self.schema, &before, &undone)
    }
}

/// Executes a statement in a way that its failure does not end the transaction.
async fn shielded<DB: Twin>(
    pair: &mut Pair<'_, DB>,
    statement: &Statement,
) -> Result<Answer, sqlx::Error> {
    if !DB::FAILURE_ENDS {
        return DB::ours(pair.ours, statement).await;
    }
    pair.ours.savepoint("shield").await?;
    let answer = DB::ours(pair.ours, statement).await;
    if answer.is_err() {
        pair.ours.rollback_to("shield").await?;
    }
    pair.ours.release_savepoint("shield").await?;
    answer
}

async fn shielded_plain<DB: Twin>(
    plain: &mut Transaction<'static, DB>,
    statement: &Statement,
) -> Result<Answer, sqlx::Error> {
    if !DB::FAILURE_ENDS && !DB::KEEPS_HALVES {
        return DB::plain(plain, statement).await;
    }
    DB::control(plain, "SAVEPOINT shield").await?;
    let answer = DB::plain(plain, statement).await;
    if answer.is_err() {
        DB::control(plain, "ROLLBACK TO SAVEPOINT shield").await?;
    }
    DB::control(plain, "RELEASE SAVEPOINT shield").await?;
    answer
}

fn is_refusal(error: &sqlx::Error) -> bool {
    matches!(AtError::of(error), Some(AtError::Refused(_)))
}

/// Returns whether one row is at fault: it breaks a constraint, or has a value that cannot be
/// computed or stored (SQLSTATE class 22).
fn is_of_a_row(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| {
        let is_data = error.code().is_some_and(|code| code.starts_with("22"));
        is_data || error.kind() != ErrorKind::Other
    })
}

/// Compares the answers of both sides: rows and counts, or the code of an error.
fn compare_answers(
    statement: &Statement,
    ours: &Result<Answer, sqlx::Error>,
    plain: &Result<Answer, sqlx::Error>,
) -> Result<Answered, Finding> {
    match (ours, plain) {
        (Ok(ours), Ok(plain)) if ours == plain => Ok(Answered::Done),
        // For reads SQLite returns the count of the last change.
        (Ok(ours), Ok(plain)) if statement.reads() && ours.rows == plain.rows => Ok(Answered::Done),
        (Err(ours), Err(plain)) if code(ours) == code(plain) => Ok(Answered::Failed),
        // The image evaluates the condition for all rows before the first is changed.
        (Err(ours), Err(_)) if statement.kind == Kind::Update && overflows(ours) => {
            Ok(Answered::Failed)
        }
        // Rows that are changed by their keys may be changed in another order, and of several that
        // fail another one is told.
        (Err(ours), Err(plain)) if is_of_a_row(ours) && is_of_a_row(plain) => Ok(Answered::Failed),
        _ => Err(Finding::new(
            "a statement is answered differently",
            format!("{}\n  with Handfast: {ours:?}\n  without: {plain:?}", statement.sql),
        )),
    }
}

fn code(error: &sqlx::Error) -> Option<String> {
    let error = error.as_database_error()?;
    error.code().map(|code| code.into_owned())
}

/// Returns whether SQLite's `abs` failed for the smallest number.
fn overflows(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(|error| error.message() == "integer overflow")
}

/// Plays a whole script, and turns a panic into a finding.
pub(crate) async fn play<DB: Twin>(
    play: &mut Play<'_, DB>,
    script: &Script,
) -> Result<(), Finding> {
    let played = std::panic::AssertUnwindSafe(play.global(script)).catch_unwind().await;
    played.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(Finding::new("a panic", text.unwrap_or_default()))
    })
}
