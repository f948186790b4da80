//! Acquires a lock, works under it with the fencing token, and releases it. Needs no server:
//! `cargo run -p handfast-locks --example hello_lock`.

#![expect(clippy::print_stdout, reason = "an example shows its result")]

use anyhow::ensure;
use handfast_locks::{FencingToken, Locks, MemoryLocks};

/// A resource that refuses a token smaller than one it has seen.
#[derive(Default)]
struct Stock {
    units: u32,
    largest_token: Option<FencingToken>,
}

impl Stock {
    fn add(&mut self, token: FencingToken, units: u32) -> anyhow::Result<()> {
        ensure!(Some(token) >= self.largest_token, "fencing token {token} came too late");
        self.largest_token = Some(token);
        self.units += units;
        Ok(())
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let locks = Locks::over(MemoryLocks::new()).start()?;
    let mut stock = Stock::default();

    let first = locks.lock("stock/7").await?;
    let late_token = first.fencing_token();
    stock.add(late_token, 2)?;
    println!("the first holder released: {:?}", first.release().await?);

    let second = locks.lock("stock/7").await?;
    stock.add(second.fencing_token(), 3)?;
    println!("a late write: {:?}", stock.add(late_token, 9).map_err(|error| error.to_string()));
    println!("{} units, released: {:?}", stock.units, second.release().await?);
    Ok(())
}
