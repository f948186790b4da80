//! Runs cases: the refusal, the same without the library, and the advice.

use std::panic::AssertUnwindSafe;

use futures::FutureExt;
use handfast::{AtError, Global};

use super::case::{Advice, Case, Effect, Setup, When};
use super::plain::{Bound, PlainSql, Tried};
use crate::at::{Stage, TestDatabase, TextRow, code};

/// The rows of each table of a set-up.
type Tables = Vec<Vec<TextRow>>;

/// A table for the next statement behind a refused one.
const NEXT_TABLE: &str = "CREATE TABLE next_one (n INTEGER NOT NULL PRIMARY KEY)";
const NEXT: &str = "INSERT INTO next_one VALUES (1)";

/// Runs every case on the tables of the set-up, and fails with a list of those that failed.
pub(crate) async fn check<DB: PlainSql>(setup: &Setup, cases: &[Case<DB>]) {
    assert!(!cases.is_empty());
    let mut failed = Vec::new();
    let mut kept = None;
    for case in cases {
        let mut stage = match kept.take() {
            Some(stage) => stage,
            None => staged(setup).await,
        };
        // The panic's message is printed where it arises.
        let run = AssertUnwindSafe(case.check(&mut stage, setup));
        match run.catch_unwind().await {
            Ok(()) if case.is_traceless() => kept = Some(stage),
            Ok(()) => {}
            Err(_) => failed.push(case.refused.0),
        }
    }
    assert!(failed.is_empty(), "{} of {}:\n{}", failed.len(), cases.len(), failed.join("\n"));
}

async fn staged<DB: TestDatabase>(setup: &Setup) -> Stage<DB> {
    let stage = Stage::new(&[NEXT_TABLE]).await;
    for sql in setup.statements {
        DB::raw(&stage.pool, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
    stage
}

impl<DB: PlainSql> Case<DB> {
    async fn check(&self, stage: &mut Stage<DB>, setup: &Setup) {
        let before = setup.read(stage).await;
        if let Some(resource) = self.refused_on {
            stage.resource = resource(stage).await;
        }
        self.check_refused(stage, setup, &before).await;
        let expected = self.expected(stage, setup, &before).await;
        for sql in self.outside {
            DB::run_alone(&stage.resource, sql)
                .await
                .unwrap_or_else(|error| panic!("outside, {sql}: {error}"));
        }
        if let Some(resource) = self.resource {
            stage.resource = resource(stage).await;
        } else if self.refused_on.is_none() && !self.outside.is_empty() {
            // A table's description is remembered for a while.
            stage.resource = stage.handfast.at(stage.pool.clone()).await.unwrap();
        }
        let statements: Vec<Bound> = match self.advice {
            Advice::Code(code) => return code(stage).await,
            Advice::Nothing => {
                assert_eq!(setup.read(stage).await, expected.tables, "{}", self.refused.0);
                return;
            }
            Advice::Again => vec![self.refused],
            Advice::Statements(statements) => statements.iter().map(|sql| (*sql, NONE)).collect(),
            Advice::Bound(statements) => statements.to_vec(),
        };
        self.check_advice(stage, setup, &statements, &expected).await;
    }

    /// Checks the code and the text, that nothing has changed, and whether the local transaction
    /// goes on.
    async fn check_refused(&self, stage: &Stage<DB>, setup: &Setup, before: &Tables) {
        let sql = self.refused.0;
        let global = self.begin(stage).await;
        let branch = async {
            let mut local = stage.resource.begin().await.unwrap();
            let refused = DB::run_bound(&mut local, self.refused).await;
            let refused = refused.expect_err(sql);
            let text = refused.to_string();
            assert_eq!(code(&refused), format!("HF-AT-{}", self.code), "{sql}: {text}");
            assert!(matches!(AtError::of(&refused), Some(AtError::Refused(_))), "{sql}: {text}");
            assert!(text.contains(self.text), "{sql}: {text}");
            match self.when {
                When::Before => {
                    DB::run(&mut local, NEXT).await.unwrap();
                    local.commit().await.unwrap();
                    let next = stage.value("SELECT COUNT(*) FROM next_one").await;
                    assert_eq!(next.as_deref(), Some("1"), "{sql}");
                }
                When::After => {
                    let ended = local.commit().await.unwrap_err();
                    // PostgreSQL has aborted it already if the refusal comes from the database.
                    let is_aborted = ended.to_string().contains("transaction is aborted");
                    let is_ended = is_aborted || code(&ended) == "HF-AT-HALF-RECORDED";
                    assert!(is_ended, "{sql}: {ended}");
                }
            }
        };
        global.scope(branch).await;
        assert_eq!(&setup.read(stage).await, before, "{sql} is refused, and changes nothing");
        stage.roll_back(global).await;
        assert_eq!(&setup.read(stage).await, before, "{sql} is refused, and undoes nothing");
        assert_eq!(stage.undo_rows().await, 0, "{sql}");
    }

    /// Returns the effect that the advice is to have.
    async fn expected(&self, stage: &Stage<DB>, setup: &Setup, before: &Tables) -> Tried {
        let statements: Vec<Bound> = match self.effect {
            Effect::Same | Effect::Answer => vec![self.refused],
            Effect::Of(statements) => statements.iter().map(|sql| (*sql, NONE)).collect(),
            Effect::None => Vec::new(),
        };
        let tried = DB::try_plain(&stage.pool, &statements, &setup.queries::<DB>()).await;
        let tried = tried.unwrap_or_else(|error| panic!("plain, {statements:?}: {error}"));
        let changes = matches!(self.effect, Effect::Same | Effect::Of(_))
            && !matches!(self.advice, Advice::Code(_));
        assert_eq!(&tried.tables != before, changes, "{statements:?} without the library");
        assert_eq!(&setup.read(stage).await, before, "{statements:?} is taken back");
        tried
    }

    async fn check_advice(
        &self,
        stage: &Stage<DB>,
        setup: &Setup,
        statements: &[Bound],
        expected: &Tried,
    ) {
        let before = setup.read(stage).await;
        let global = self.begin(stage).await;
        let branch = async {
            let mut local = stage.resource.begin().await.unwrap();
            let mut answer = Vec::new();
            for statement in statements {
                let sql = statement.0;
                if matches!(self.effect, Effect::Answer) {
                    answer = DB::read(&mut local, sql)
                        .await
                        .unwrap_or_else(|error| panic!("instead, {sql}: {error}"));
                } else {
                    DB::run_bound(&mut local, *statement)
                        .await
                        .unwrap_or_else(|error| panic!("instead, {sql}: {error}"));
                }
            }
            local.commit().await.unwrap_or_else(|error| panic!("{statements:?}: {error}"));
            answer
        };
        let answer = global.scope(branch).await;
        assert_eq!(setup.read(stage).await, expected.tables, "{statements:?} do the same");
        if matches!(self.effect, Effect::Answer) {
            let width = expected.answer.first().expect("the plain statement reads a row").len();
            // Behind the columns of the application stand the key texts of a locking read.
            let own: Vec<&[_]> = answer.iter().map(|row| &row[..width]).collect();
            assert_eq!(own, expected.answer, "{statements:?} read the same");
        }
        stage.roll_back(global).await;
        assert_eq!(setup.read(stage).await, before, "{statements:?} are undone");
        assert_eq!(stage.undo_rows().await, 0, "{statements:?}");
    }

    async fn begin(&self, stage: &Stage<DB>) -> Global {
        let transaction = stage.handfast.transaction("test");
        let transaction = if self.committed { transaction.read_committed() } else { transaction };
        transaction.begin().await.unwrap()
    }
}

const NONE: &[i64] = &[];

impl Setup {
    /// Reads every table as texts, sorted.
    async fn read<DB: TestDatabase>(&self, stage: &Stage<DB>) -> Tables {
        let mut tables = Vec::with_capacity(self.tables.len());
        for (table, columns) in self.tables {
            tables.push(stage.dump(table, columns).await);
        }
        tables
    }

    /// The queries that [`Setup::read`] sends.
    fn queries<DB: TestDatabase>(&self) -> Vec<String> {
        let query = |(table, columns): &(&str, &[&str])| {
            let casts = columns.iter().map(|column| format!("CAST({column} AS {})", DB::TEXT));
            let order = (1..=columns.len()).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
            let casts = casts.collect::<Vec<_>>().join(", ");
            format!("SELECT {casts} FROM {table} ORDER BY {order}")
        };
        self.tables.iter().map(query).collect()
    }
}
