//! Events of a local transaction that may be a branch.

use tracing::{Instrument, Span};

use super::branch::Role;
use super::transaction::AtTransaction;
use crate::at::database::AtDatabase;
use crate::at::undo::table::BranchEvents;
use crate::outbox::{self, Event, OutboxError, Within};

impl<DB: AtDatabase> AtTransaction<'_, DB> {
    /// Emits an event: it leaves when the global has committed, and is gone when the global rolls
    /// back. Outside of a global it leaves when this local transaction has committed.
    ///
    /// ```no_run
    /// use handfast::outbox::Event;
    ///
    /// # async fn example(stock: handfast::AtResource<sqlx::Sqlite>) -> Result<(), Box<dyn
    /// # std::error::Error>> {
    /// let mut local = stock.begin().await?;
    /// sqlx::query("UPDATE stock SET units = units - 1 WHERE id = 7").execute(&mut local).await?;
    /// local.emit(&Event::new("stock", "7").payload("taken")).await?;
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
        self.refuse_ended().map_err(sqlx::Error::from)?;
        let within = match &self.role {
            Role::Branch(branch) => {
                // Before the row: an undo row too many is harmless, one too few loses the hold.
                self.log.events = BranchEvents::Held;
                Within::Held(&branch.xid, branch.id)
            }
            Role::Plain | Role::Checked(_) => Within::Itself,
        };
        let span = match &self.role {
            Role::Branch(branch) => branch.span.clone(),
            Role::Plain | Role::Checked(_) => Span::current(),
        };
        let connection = self.local.begun().await?;
        let inserted = outbox::insert::<DB>(connection, event, within).instrument(span);
        let emitted = inserted.await;
        if let Err(OutboxError::Database(error) | OutboxError::Conflict { source: error }) =
            &emitted
        {
            self.note_failure(error);
        }
        emitted
    }
}
