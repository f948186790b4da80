//! Many clients at once, on rows of their own and on shared rows.

use std::thread;

use anyhow::{Result, anyhow, ensure};

use crate::service::Actor;
use crate::stage::{AMOUNT, TestBed, take_one};
use crate::wait::same;

const CLIENTS: usize = 64;
const ROUNDS: usize = 4;
const SHARED_ROWS: usize = 8;

/// The globals of one client, and how many of them committed.
#[derive(Debug, Default)]
struct Seen {
    committed: i64,
    xids: Vec<String>,
}

/// Sixty-four clients in two processes: what committed is in the rows, and nothing else.
pub(super) fn clients(stage: &TestBed) -> Result<()> {
    let second = stage.second_shop()?;
    let shared = (0..SHARED_ROWS).map(|_| stage.new_row()).collect::<Result<Vec<_>>>()?;
    let own = (0..CLIENTS).map(|_| stage.new_row()).collect::<Result<Vec<_>>>()?;
    let seen = thread::scope(|scope| {
        let mut clients = Vec::new();
        for (at, own) in own.iter().copied().enumerate() {
            let service = if at % 2 == 0 { stage.shop() } else { &second };
            let (client, shared) = (service.actor(), shared[at % SHARED_ROWS]);
            clients.push(scope.spawn(move || play(&client, at, own, shared)));
        }
        let ends = clients
            .into_iter()
            .map(|client| client.join().map_err(|_panic| anyhow!("a client panicked"))?);
        ends.collect::<Result<Vec<Seen>>>()
    })?;
    let committed: i64 = seen.iter().map(|seen| seen.committed).sum();
    ensure!(committed >= i64::try_from(CLIENTS)?, "only {committed} globals committed");
    // Rollbacks may be under way; a row is what it will be when its last undo row is gone.
    for xid in seen.iter().flat_map(|seen| &seen.xids) {
        stage.until_no_undo_rows(xid)?;
    }
    for (own, seen) in own.iter().zip(&seen) {
        same("an own row", &stage.amount(*own)?, &(AMOUNT - seen.committed))?;
    }
    for (at, row) in shared.iter().enumerate() {
        let of_row = seen.iter().skip(at).step_by(SHARED_ROWS);
        let committed: i64 = of_row.map(|seen| seen.committed).sum();
        same("a shared row", &stage.amount(*row)?, &(AMOUNT - committed))?;
    }
    Ok(())
}

/// Every other global is rolled back, and so is one that met a lock for too long.
fn play(client: &Actor<'_>, at: usize, own: u32, shared: u32) -> Result<Seen> {
    let mut seen = Seen::default();
    for round in 0..ROUNDS {
        seen.xids.push(client.begin(120_000)?);
        // A rollback of the round before may yet hold the lock of the own row, too.
        let has_own = client.ask(&format!("at {}", take_one(own)))?.has_succeeded()?;
        let has_shared = client.ask(&format!("at {}", take_one(shared)))?.has_succeeded()?;
        if has_own && has_shared && (at + round).is_multiple_of(2) {
            same("the end", &client.tell("commit")?, &"Committed".to_owned())?;
            seen.committed += 1;
        } else {
            // The rollback of a shared row may take longer than the client waits for an answer.
            let end = client.tell("rollback")?;
            ensure!(["RollbackDone", "Rollbacking"].contains(&end.as_str()), "the end is {end}");
        }
    }
    Ok(seen)
}
