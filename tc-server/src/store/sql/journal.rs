//! The journal: one row a batch, numbered without gaps, each with the epoch of its leader.
//!
//! A row is stored only behind the row before it, and only if that has the same epoch. A leader
//! begins its epoch with a row without changes, its mark, behind a row of an earlier epoch. So the
//! database decides which process leads:
//!
//! ```text
//! number  41 · 42 · 43        44        45 · 46
//! epoch    7    7    7         9         9    9
//!         batches of 7    mark of 9    batches of 9      a batch of 7 as 44: refused
//! ```
//!
//! A unique number alone would not do: once compaction has deleted rows 1 to 45, a leader of epoch
//! 7 that wakes up could store its row 44. A statement that stores a row locks the row before it,
//! so that the next mark and compaction wait for the statement.

use std::sync::{Mutex, PoisonError};

use handfast_core::Epoch;

use super::connection::{ConnectionSlot, Value};
use super::dialect::CallError;
use super::retries::{Failure, Retries};
use super::schema;
use crate::clock;
use crate::store::StoreError;

/// A row of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) number: u64,
    pub(super) epoch: Epoch,
}

/// The latest row that this process knows to be durable. A database that lacks it has failed over
/// to a standby that was behind, or was restored.
#[derive(Debug, Default)]
pub(super) struct Witness(Mutex<Option<Position>>);

impl Witness {
    /// Notes a row.
    pub(super) fn note(&self, position: Position) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.is_none_or(|latest| latest.number < position.number) {
            *latest = Some(position);
        }
    }

    fn latest(&self) -> Option<Position> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The result of storing a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Appended {
    /// It is durable.
    Durable,
    /// It is not stored, for no visible reason: another attempt will show.
    Unexplained,
    /// Another process leads.
    Deposed,
    /// The database lacks what was acknowledged.
    WentBack(String),
}

/// Returns the newest row.
pub(super) async fn newest(slot: &mut ConnectionSlot) -> Result<Option<Position>, CallError> {
    let sql = slot.database().dialect.statements().newest;
    let namespace = slot.database().namespace.clone();
    let rows = slot.fetch(sql, &[Value::Text(&namespace)]).await?;
    let Some(mut row) = rows.into_iter().next() else { return Ok(None) };
    Ok(Some(Position { number: row.number()?, epoch: Epoch(row.number()?) }))
}

/// Stores a batch as the row behind `last`. After any answer but success it checks whether the
/// batch is there: an earlier attempt may have stored it.
pub(super) async fn append(
    slot: &mut ConnectionSlot,
    last: Position,
    frame: &[u8],
) -> Result<Appended, CallError> {
    let sql = slot.database().dialect.statements().append_batch;
    let namespace = slot.database().namespace.clone();
    let [number, epoch] = [last.number + 1, last.epoch.0].map(Value::Number);
    let at = Value::Number(clock::of_machine().0);
    let values = [
        number,
        epoch,
        at,
        Value::Bytes(frame),
        Value::Text(&namespace),
        Value::Number(last.number),
        epoch,
    ];
    match slot.execute(sql, &values).await {
        // The row before is not this leader's last, or the number is taken: perhaps by an earlier
        // attempt of its own, whose answer was lost.
        Ok(0) | Err(CallError::Duplicate) => match explain(last, newest(slot).await?) {
            Appended::Durable => confirm(slot, last, frame).await,
            lacking @ (Appended::Unexplained | Appended::Deposed | Appended::WentBack(_)) => {
                Ok(lacking)
            }
        },
        Ok(_) => Ok(Appended::Durable),
        Err(error) => Err(error),
    }
}

/// Confirms that the row behind `last` has this batch, by a change of it. Reading it would be no
/// proof: a database may show a row whose commit still waits for a standby, and after a fail-over
/// that lost the lease the row may be that of another process with the same epoch.
async fn confirm(
    slot: &mut ConnectionSlot,
    last: Position,
    frame: &[u8],
) -> Result<Appended, CallError> {
    let sql = slot.database().dialect.statements().confirm_batch;
    let namespace = slot.database().namespace.clone();
    let [number, epoch] = [last.number + 1, last.epoch.0].map(Value::Number);
    let values = [Value::Text(&namespace), number, epoch, Value::Bytes(frame)];
    let changed = slot.execute(sql, &values).await?;
    Ok(if changed > 0 { Appended::Durable } else { Appended::Deposed })
}

/// Concludes from the newest row what became of the row behind `last`. Only one process has the
/// epoch, and it stores one row at a time.
fn explain(last: Position, newest: Option<Position>) -> Appended {
    let behind = Position { number: last.number + 1, ..last };
    match newest {
        Some(newest) if newest == behind => Appended::Durable,
        Some(newest) if newest == last => Appended::Unexplained,
        Some(newest) if newest.number > last.number => Appended::Deposed,
        newest => Appended::WentBack(lacks(last.number, newest)),
    }
}

fn lacks(number: u64, newest: Option<Position>) -> String {
    match newest {
        Some(newest) => format!("batch {number} is missing, and {} is the newest", newest.number),
        None => format!("batch {number} is missing, and its journal is empty"),
    }
}

/// Stores the mark of an epoch. Returns its row, or `None` if an epoch that is no smaller has a
/// mark, or if an answer was lost: the row may be there then, but its epoch is not used.
pub(super) async fn lay_mark(
    slot: &mut ConnectionSlot,
    witness: &Witness,
    epoch: Epoch,
) -> Result<Option<Position>, StoreError> {
    let database = slot.database().clone();
    let mut retries = Retries::of("laying the mark");
    loop {
        let before = match check_newest(slot, witness).await {
            Ok(before) => before,
            Err(failure) => {
                retries.pause(&database, failure).await?;
                continue;
            }
        };
        let mark = Position { number: before.number + 1, epoch };
        match insert_mark(slot, before, mark).await {
            Ok(0) | Err(CallError::Duplicate) => {
                // The journal has moved on, or is another leader's by right.
                if before.epoch >= epoch {
                    return Ok(None);
                }
            }
            Ok(_) => return Ok(Some(mark)),
            Err(CallError::Unknown(_)) => return Ok(None),
            Err(error) => retries.pause(&database, error).await?,
        }
    }
}

async fn insert_mark(
    slot: &mut ConnectionSlot,
    before: Position,
    mark: Position,
) -> Result<u64, CallError> {
    let sql = slot.database().dialect.statements().append_mark;
    let namespace = slot.database().namespace.clone();
    let [number, epoch] = [mark.number, mark.epoch.0].map(Value::Number);
    let at = Value::Number(clock::of_machine().0);
    let namespace = Value::Text(&namespace);
    let values = [number, epoch, at, namespace, Value::Number(before.number), epoch];
    slot.execute(sql, &values).await
}

/// Returns the newest row, after a check that the journal has what this process knows of.
pub(super) async fn check_newest(
    slot: &mut ConnectionSlot,
    witness: &Witness,
) -> Result<Position, Failure> {
    let Some(found) = newest(slot).await? else {
        let reason = "tc_journal is empty, although tc_mark says that batches were applied";
        return Err(slot.database().unusable(reason).into());
    };
    let Some(known) = witness.latest() else {
        witness.note(found);
        return Ok(found);
    };
    if known.number > found.number {
        // A standby that has yet to be promoted may still lag behind its primary.
        schema::refuse_replica(slot).await?;
        return Err(slot.database().went_back(lacks(known.number, Some(found))).into());
    }
    // A row that is not there any more was compacted.
    if epoch_at(slot, known.number).await?.is_some_and(|epoch| epoch != known.epoch) {
        let reason = format!("batch {} is that of another leader", known.number);
        return Err(slot.database().went_back(reason).into());
    }
    witness.note(found);
    Ok(found)
}

/// Returns the epoch of a row, or `None` if it is not there or not any more.
async fn epoch_at(slot: &mut ConnectionSlot, number: u64) -> Result<Option<Epoch>, CallError> {
    let sql = slot.database().dialect.statements().epoch_at;
    let namespace = slot.database().namespace.clone();
    let rows = slot.fetch(sql, &[Value::Text(&namespace), Value::Number(number)]).await?;
    let Some(mut row) = rows.into_iter().next() else { return Ok(None) };
    Ok(Some(Epoch(row.number()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAST: Position = Position { number: 5, epoch: Epoch(3) };

    fn explained(number: u64, epoch: u64) -> Appended {
        explain(LAST, Some(Position { number, epoch: Epoch(epoch) }))
    }

    #[test]
    fn the_newest_row_tells_what_became_of_a_batch() {
        assert_eq!(explained(6, 3), Appended::Durable);
        assert_eq!(explained(5, 3), Appended::Unexplained);
        assert_eq!(explained(6, 4), Appended::Deposed);
        assert_eq!(explained(9, 4), Appended::Deposed);
        for went_back in [explained(4, 3), explained(5, 4), explain(LAST, None)] {
            assert!(matches!(went_back, Appended::WentBack(_)), "{went_back:?}");
        }
    }
}
