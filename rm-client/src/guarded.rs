//! Guarded tables: the database itself refuses writes from outside to rows of an undecided global.
//!
//! `handfast guard` is this as a command. It needs a pool and no coordinator; which statements are
//! refused, and what it costs, is in `docs/operate/guarded-tables.md`.
//!
//! ```no_run
//! use handfast::guarded::{self, GuardMode, GuardStart};
//!
//! # async fn example(pool: sqlx::PgPool) -> Result<(), handfast::guarded::GuardError> {
//! let guard = guarded::enable(&pool, "stock", GuardMode::Refuse, GuardStart::WhenKnown).await?;
//! println!("{} is guarded from {} on", guard.table, guard.effective_from);
//! # Ok(())
//! # }
//! ```

pub use crate::at::guarded::{
    GuardError, GuardHolder, GuardMode, GuardStart, GuardedTable, clean, disable, enable, holders,
    list,
};
