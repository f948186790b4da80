//! Runs the applications of each database, the databases beside each other.

use std::env;

use sqlx::{MySql, Postgres, Sqlite};

use crate::application::{Application, applications};
use crate::database::Product;
use crate::entry::Entry;
use crate::judge::{Verdict, judge};
use crate::stage::Stage;

/// The part of the corpus that runs.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    application: Option<String>,
    database: Option<String>,
}

/// The verdicts on an application's statements on a database.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) application: String,
    /// The database's title.
    pub(crate) database: &'static str,
    pub(crate) verdicts: Vec<(Entry, Verdict)>,
}

/// The verdicts of a run.
#[derive(Clone, Debug)]
pub(crate) struct Coverage(pub(crate) Vec<Ran>);

impl Chosen {
    pub(crate) fn from_environment() -> Self {
        let variable = |name| env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            application: variable("HANDFAST_CORPUS_APPLICATION"),
            database: variable("HANDFAST_CORPUS_DATABASE"),
        }
    }

    pub(crate) fn is_everything(&self) -> bool {
        self.application.is_none() && self.database.is_none()
    }

    fn applications<DB: Product>(&self) -> Vec<Application> {
        if self.database.as_deref().is_some_and(|name| name != DB::FILE) {
            return Vec::new();
        }
        let mut all = applications(DB::FILE);
        all.retain(|it| self.application.as_deref().is_none_or(|name| name == it.name));
        all
    }
}

impl Coverage {
    /// Returns a description of each wrong verdict.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let wrong = |ran: &Ran| -> Vec<String> {
            let place = format!("{}, {}", ran.application, ran.database);
            let wrong = ran.verdicts.iter().filter_map(|(entry, verdict)| {
                let Verdict::Wrong(why) = verdict else { return None };
                Some(format!("{place}: {}\n{}\n{why}", entry.name, entry.sql()))
            });
            wrong.collect()
        };
        self.0.iter().flat_map(wrong).collect()
    }
}

/// Runs what is chosen.
pub(crate) async fn all(chosen: &Chosen) -> Coverage {
    let (postgres, mysql, sqlite) = tokio::join!(
        tokio::spawn(product::<Postgres>(chosen.applications::<Postgres>())),
        tokio::spawn(product::<MySql>(chosen.applications::<MySql>())),
        tokio::spawn(product::<Sqlite>(chosen.applications::<Sqlite>())),
    );
    let ran = [postgres, mysql, sqlite].into_iter().flat_map(Result::unwrap).collect();
    Coverage(ran)
}

async fn product<DB: Product>(applications: Vec<Application>) -> Vec<Ran> {
    let mut ran = Vec::new();
    for application in applications {
        let verdicts = verdicts::<DB>(&application).await;
        ran.push(Ran { application: application.name, database: DB::TITLE, verdicts });
    }
    ran
}

async fn verdicts<DB: Product>(application: &Application) -> Vec<(Entry, Verdict)> {
    let mut verdicts = Vec::new();
    let mut stage = Stage::<DB>::new(application).await;
    for entry in &application.entries {
        let verdict = judge(&mut stage, entry).await;
        // The traces of a statement must not make others wrong.
        let is_clean = match verdict {
            Verdict::Exact => true,
            Verdict::Refused(_) => stage.is_at_start().await,
            Verdict::Wrong(_) => false,
        };
        if !is_clean {
            stage.end().await;
            stage = Stage::new(application).await;
        }
        verdicts.push((entry.clone(), verdict));
    }
    stage.end().await;
    verdicts
}
