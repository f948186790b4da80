//! `sqlx::Executor` for AT mode: one concrete impl per database.

use super::phase_one::AtTransaction;
use super::resource::AtResource;
use crate::executor::{impl_executor, impl_executor_of_guard};

#[cfg(feature = "postgres")]
impl_executor!(AtTransaction, AtResource, sqlx::Postgres);
#[cfg(feature = "postgres")]
impl_executor_of_guard!(AtTransaction, sqlx::Postgres);
#[cfg(feature = "mysql")]
impl_executor!(AtTransaction, AtResource, sqlx::MySql);
#[cfg(feature = "mysql")]
impl_executor_of_guard!(AtTransaction, sqlx::MySql);
#[cfg(feature = "sqlite")]
impl_executor!(AtTransaction, AtResource, sqlx::Sqlite);
#[cfg(feature = "sqlite")]
impl_executor_of_guard!(AtTransaction, sqlx::Sqlite);
