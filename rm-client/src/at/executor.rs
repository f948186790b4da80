//! `sqlx::Executor` for AT mode: one concrete impl per database.

use super::phase_one::AtTransaction;
use super::resource::AtResource;
use crate::executor::impl_executor;

#[cfg(feature = "postgres")]
impl_executor!(AtTransaction, AtResource, sqlx::Postgres);
#[cfg(feature = "mysql")]
impl_executor!(AtTransaction, AtResource, sqlx::MySql);
#[cfg(feature = "sqlite")]
impl_executor!(AtTransaction, AtResource, sqlx::Sqlite);
