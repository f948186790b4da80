//! Keeps locks in SQLite and claims the rows that they protect in the same database file. Needs no
//! server: `cargo run -p handfast-locks --example fenced_transaction`.

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use handfast_locks::{Guard, Locks, SqliteLocks};
use handfast_migrations::{Database, client_migrations};
use sqlx::{Executor, SqlitePool};

async fn add_units(pool: &SqlitePool, guard: &Guard, units: i64) -> anyhow::Result<i64> {
    let mut local = pool.begin().await?;
    guard.claim(&mut local).await?; // before the first read
    let found: i64 = sqlx::query_scalar("SELECT units FROM stock").fetch_one(&mut *local).await?;
    let write = sqlx::query("UPDATE stock SET units = ?").bind(found + units);
    write.execute(&mut *local).await?;
    local.commit().await?;
    Ok(found + units)
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}?mode=rwc", folder.path().join("shop.db").display());
    let pool = SqlitePool::connect(&url).await?;
    for migration in client_migrations(Database::Sqlite) {
        for statement in migration.statements() {
            pool.execute(statement).await?;
        }
    }
    pool.execute("CREATE TABLE stock (units INTEGER); INSERT INTO stock VALUES (5)").await?;

    let locks = Locks::over(SqliteLocks::connect(&url).await?).label("hello").start()?;
    // The work is stopped at its next await if the lock is lost.
    let units = locks.run("stock", async |guard| add_units(&pool, guard, 3).await).await??;
    println!("{units} units");
    Ok(())
}
