//! Private database servers for one run: free ports, data in a temporary directory, all gone
//! afterwards.
//!
//! Durability is real (every commit is synced), so that tests meet the timing that users meet;
//! memory is small. A server that the caller names in the environment is used instead of a private
//! one.

mod guard;
mod mariadb;
mod postgres;
mod probe;
mod server;

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::install::{Needed, install_missing};
use crate::interrupt::Interrupts;
use crate::say::say;

use self::guard::Guard;
use self::server::Server;

/// Names the PostgreSQL server that tests use, with the right to create databases.
pub(crate) const POSTGRES_VARIABLE: &str = "HANDFAST_TEST_POSTGRES";
/// Names the MySQL or MariaDB server that tests use, with the right to create databases.
pub(crate) const MYSQL_VARIABLE: &str = "HANDFAST_TEST_MYSQL";

/// The running servers. Dropping it stops them and removes their data.
#[derive(Debug)]
pub(crate) struct Services {
    // Dropped in this order: servers stop before their data goes, and the guard goes last.
    servers: Vec<Server>,
    variables: Vec<(&'static str, String)>,
    folder: TempDir,
    guard: Guard,
}

/// How one kind of server is started.
struct Kind {
    variable: &'static str,
    needed: Needed,
    start: fn(&Interrupts, &TempDir, &mut Guard) -> Result<(Server, String)>,
}

const KINDS: [Kind; 2] = [
    Kind { variable: POSTGRES_VARIABLE, needed: postgres::NEEDED, start: postgres::start },
    Kind { variable: MYSQL_VARIABLE, needed: mariadb::NEEDED, start: mariadb::start },
];

impl Services {
    /// Installs and starts what the environment does not name already.
    pub(crate) fn start(interrupts: &Interrupts) -> Result<Self> {
        let own: Vec<Kind> =
            KINDS.into_iter().filter(|kind| env::var_os(kind.variable).is_none()).collect();
        let needed: Vec<Needed> = own.iter().map(|kind| kind.needed).collect();
        install_missing(interrupts, &needed)?;
        let folder = tempfile::Builder::new().prefix("handfast-services-").tempdir()?;
        // The servers run under accounts of their own and must get through to their data.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711))?;
        let guard = Guard::start(folder.path())?;
        let mut services = Self { servers: Vec::new(), variables: Vec::new(), folder, guard };
        for kind in own {
            services.start_one(interrupts, &kind)?;
        }
        Ok(services)
    }

    /// What tests find in their environment.
    pub(crate) fn variables(&self) -> &[(&'static str, String)] {
        &self.variables
    }

    /// The address of every server, private or named by the caller.
    pub(crate) fn urls(&self) -> Result<Vec<String>> {
        KINDS.iter().map(|kind| self.url(kind.variable)).collect()
    }

    fn url(&self, variable: &'static str) -> Result<String> {
        match self.variables.iter().find(|(name, _)| *name == variable) {
            Some((_, url)) => Ok(url.clone()),
            None => env::var(variable).context(variable),
        }
    }

    fn start_one(&mut self, interrupts: &Interrupts, kind: &Kind) -> Result<()> {
        interrupts.check()?;
        let (server, url) = (kind.start)(interrupts, &self.folder, &mut self.guard)?;
        say(format_args!("{} runs at {url}", kind.needed.name));
        self.servers.push(server);
        self.variables.push((kind.variable, url));
        Ok(())
    }
}
