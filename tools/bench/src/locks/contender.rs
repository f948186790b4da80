//! The implementations that take and release locks: the library, or a recipe.

use anyhow::Result;
use handfast_locks::{Guard, Locks};

use super::Backend;
use super::recipe::{self, Recipe};
use crate::usage::Process;

/// The name of the library in rows.
pub(crate) const LIBRARY: &str = "library";
/// Servers whose processor time counts, besides coordinators.
const SERVER_PROGRAMS: [&str; 6] =
    ["etcd", "java", "mariadbd", "mysqld", "postgres", "redis-server"];

/// One implementation of locks on one backend.
#[derive(Debug)]
pub(crate) struct Contender {
    pub(super) backend: Backend,
    way: Way,
    /// The coordinator, if it is the backend.
    coordinator: Option<Process>,
}

#[derive(Debug)]
enum Way {
    Library(Locks),
    Plain(Recipe),
}

/// A lock that is held.
#[derive(Debug)]
pub(crate) enum Held<'c> {
    Library(Guard),
    Plain(recipe::Held<'c>),
}

impl Contender {
    pub(super) fn library(backend: Backend, locks: Locks) -> Self {
        Self { backend, way: Way::Library(locks), coordinator: None }
    }

    pub(super) fn plain(backend: Backend, recipe: Recipe) -> Self {
        Self { backend, way: Way::Plain(recipe), coordinator: None }
    }

    /// Sets the coordinator behind it.
    pub(super) fn on(self, coordinator: Process) -> Self {
        Self { coordinator: Some(coordinator), ..self }
    }

    pub(crate) fn is_plain(&self) -> bool {
        matches!(self.way, Way::Plain(_))
    }

    /// Returns the name of the implementation.
    pub(crate) fn way(&self) -> &'static str {
        match &self.way {
            Way::Library(_) => LIBRARY,
            Way::Plain(recipe) => recipe.name(),
        }
    }

    /// Returns every process that may work for the clients.
    pub(crate) fn servers(&self) -> Result<Vec<Process>> {
        let mut servers = Process::named(&SERVER_PROGRAMS)?;
        servers.extend(self.coordinator);
        Ok(servers)
    }

    /// Waits until the lock of this number is held.
    pub(crate) async fn take(&self, number: usize) -> Result<Held<'_>> {
        Ok(match &self.way {
            Way::Library(locks) => Held::Library(locks.lock(&format!("bench/{number}")).await?),
            Way::Plain(recipe) => Held::Plain(recipe.take(number).await?),
        })
    }

    /// Releases it.
    pub(crate) async fn release(&self, number: usize, held: Held<'_>) -> Result<()> {
        match (&self.way, held) {
            (_, Held::Library(guard)) => drop(guard.release().await?),
            (Way::Plain(recipe), Held::Plain(held)) => recipe.release(number, held).await?,
            (Way::Library(_), Held::Plain(_)) => {}
        }
        Ok(())
    }
}
