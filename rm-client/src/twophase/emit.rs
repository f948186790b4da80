//! Events of a local transaction that may be prepared.
//!
//! The row is part of the prepared transaction: it is not visible before the global commits, and a
//! rollback removes it. No event has to be held or released.

use tracing::{Instrument, Span};

use super::database::XaDatabase;
use super::transaction::XaTransaction;
use crate::outbox::{self, Event, OutboxError, Within};

impl<DB: XaDatabase> XaTransaction<'_, DB> {
    /// Emits an event: it leaves when the global has committed, and is gone when the global rolls
    /// back. Outside of a global it leaves when this local transaction has committed.
    ///
    /// ```no_run
    /// use handfast::outbox::Event;
    ///
    /// # async fn example(ledger: handfast::XaResource<sqlx::Postgres>) -> Result<(), Box<dyn
    /// # std::error::Error>> {
    /// let mut local = ledger.begin().await?;
    /// sqlx::query("UPDATE account SET cents = cents - 9 WHERE id = 7").execute(&mut local).await?;
    /// local.emit(&Event::new("accounts", "7").payload("debited")).await?;
    /// local.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`OutboxError::Malformed`] and [`OutboxError::TooLarge`], before anything was sent;
    /// [`OutboxError::TableMissing`]; or what the database says. After the latter two the local
    /// transaction is to be rolled back.
    pub async fn emit(&mut self, event: &Event) -> Result<(), OutboxError> {
        let span = self.branch.as_ref().map_or_else(Span::current, |branch| branch.span.clone());
        let within = match &mut self.branch {
            Some(branch) => {
                // The INSERT does not pass `admit`, which takes note of writing texts.
                branch.only_reads = false;
                Within::Prepared(&branch.xid, branch.name.branch)
            }
            None => Within::Itself,
        };
        outbox::insert::<DB>(&mut self.session, event, within).instrument(span).await
    }
}
