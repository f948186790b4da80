//! The database that several coordinators share.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use reqwest::Url;

use crate::cli::Options;
use crate::database::{DatabaseKind, Server, run_name};

/// A database on the server of the services, which is removed at the end.
#[derive(Debug)]
pub(crate) struct CoordinatorDatabase {
    /// Its URL without the password.
    pub(super) url: String,
    /// The file with the password, if there is one.
    pub(super) password_file: Option<PathBuf>,
    name: String,
}

impl CoordinatorDatabase {
    /// Makes the database, if the options ask for several coordinators. The password goes into a
    /// file in `folder`.
    pub(crate) async fn create(
        server: &Server,
        options: &Options,
        folder: &Path,
    ) -> Result<Option<Self>> {
        let count = options.coordinators;
        if count == 1 {
            return Ok(None);
        }
        if server.kind() == DatabaseKind::Sqlite {
            bail!(
                "--coordinators {count}: several coordinators share a database server: add \
                 --database postgres://… or mysql://…"
            );
        }
        let name = format!("handfast_coordinator_{}", run_name()?);
        let mut url = Url::parse(&server.place(&name, folder)).context("--database")?;
        let password_file = match url.password() {
            Some(password) => {
                let file = folder.join("coordinator-password");
                fs::write(&file, password).context("writing the password of the database")?;
                Some(file)
            }
            None => None,
        };
        url.set_password(None).map_err(|()| anyhow!("--database: the URL names no host"))?;
        server.create(&name, folder, 1).await.context(name.clone())?.close().await;
        Ok(Some(Self { url: url.into(), password_file, name }))
    }

    /// Drops the database, which has no coordinator left.
    pub(crate) async fn remove(self, server: &Server) -> Result<()> {
        server.remove(&self.name).await.context(self.name)
    }
}
