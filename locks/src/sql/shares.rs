//! Locks in shared mode, in a third table: readers and permits.
//!
//! The row of the lock says that it is shared, and ends with the last permit, so that a request for
//! the exclusive mode need look at nothing else. Every change of a permit locks the row, in one
//! short transaction: reads, a decision, writes. A shared row stays shared after its last permit
//! has ended, until an exclusive holder takes it: permits in between get the same fencing token.

/// The owner in the row of a shared lock.
pub(super) const SHARED: &str = "shared";

/// The state of a lock, read under the lock of its row.
pub(super) struct LockedRow {
    pub(super) owner: String,
    pub(super) fencing_token: i64,
    pub(super) is_live: bool,
    /// The marks of barred ids.
    pub(super) barred: String,
    /// The permits that have not ended: the id, and the number of permits.
    pub(super) shares: Vec<(String, i64)>,
    /// The number of waiters that have waited longer.
    pub(super) ahead: i64,
}

/// The outcome of a request for a permit.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PermitDecision {
    /// The permit is held.
    Permit { fencing_token: i64 },
    /// Not yet.
    Busy,
    /// Others hold permits of another number.
    OtherPermits { permits: i64 },
}

impl LockedRow {
    pub(super) fn decision(&self, id: &str, permits: u32) -> PermitDecision {
        let is_shared = self.owner == SHARED;
        // A permit counts in a shared row alone: if the database's clock is set back, an ended
        // permit seems alive beside the writer that has followed it.
        let has_permit = is_shared && self.shares.iter().any(|(holder, _)| holder == id);
        if self.owner == id || has_permit {
            return PermitDecision::Permit { fencing_token: self.fencing_token };
        }
        if let Some((_, other)) = self.shares.iter().find(|(_, other)| *other != i64::from(permits))
        {
            return PermitDecision::OtherPermits { permits: *other };
        }
        let is_taken = self.is_live && !self.owner.is_empty() && !is_shared;
        let is_full = self.shares.len() >= usize::try_from(permits).unwrap_or(usize::MAX);
        if is_taken || is_full || self.ahead > 0 {
            return PermitDecision::Busy;
        }
        PermitDecision::Permit { fencing_token: self.fencing_token + i64::from(!is_shared) }
    }
}

/// Implements the shared mode of a backend, by the statements of its database.
macro_rules! sql_shares {
    ($locks:ty, $database:ty) => {
        impl $locks {
            /// Requests a permit, in one transaction. A release at the same time waits for the row,
            /// and then sees the queue with this waiter in it.
            async fn acquire_permit(
                &self,
                request: &AcquireRequest,
                permits: u32,
            ) -> Result<AcquireResponse, BackendError> {
                let mut call = PooledCall::begin(&self.pool).await?;
                let answer = self.try_acquire_permit(&mut call, request, permits).await;
                call.end(answer)
            }

            async fn try_acquire_permit(
                &self,
                connection: &mut <$database as sqlx::Database>::Connection,
                request: &AcquireRequest,
                permits: u32,
            ) -> Result<AcquireResponse, BackendError> {
                let (name, id) = (request.name.as_str(), request.id.to_string());
                let decision =
                    decide_permit(connection, request, &id, permits).await.map_err(explain)?;
                match decision {
                    PermitDecision::Permit { fencing_token } => {
                        // There may be room for one more.
                        wake(connection, name).await.map_err(explain)?;
                        Ok(AcquireResponse::granted(FencingToken::new(fencing_token)))
                    }
                    PermitDecision::Busy => {
                        if request.queue == QueueMode::Join {
                            let dead = sqlx::query(FORGET_DEAD).bind(name);
                            dead.execute(&mut *connection).await.map_err(explain)?;
                        }
                        let observed = read_lock(connection, name, &id).await.map_err(explain)?;
                        Ok(observed.answer(Self::POLL))
                    }
                    PermitDecision::OtherPermits { permits } => {
                        Err(BackendError::other_permits(u32::try_from(permits).unwrap_or(u32::MAX)))
                    }
                }
            }
        }

        async fn decide_permit(
            connection: &mut <$database as sqlx::Database>::Connection,
            request: &AcquireRequest,
            id: &str,
            permits: u32,
        ) -> Result<PermitDecision, sqlx::Error> {
            let name = request.name.as_str();
            // There must be a row to lock: otherwise two first requests would both find the lock
            // free.
            sqlx::query(MAKE_ROW).bind(name).execute(&mut *connection).await?;
            let mut transaction = sqlx::Connection::begin_with(&mut *connection, BEGIN).await?;
            let Some(mut row) = lock_row(&mut transaction, name).await? else {
                return Ok(PermitDecision::Busy);
            };
            row.ahead = read_lock(&mut transaction, name, id).await?.ahead;
            let decision = if row.barred.contains(&mark(request.id)) {
                PermitDecision::Busy
            } else {
                row.decision(id, permits)
            };
            match decision {
                PermitDecision::Permit { fencing_token } => {
                    let put = sqlx::query(PUT_SHARE).bind(name).bind(id).bind(&*request.label);
                    let put = put.bind(i64::from(permits)).bind(microseconds(request.lease));
                    put.execute(&mut *transaction).await?;
                    write_shared_row(&mut transaction, name, fencing_token).await?;
                    leave_queue(&mut transaction, name, id).await?;
                }
                PermitDecision::Busy if request.queue != QueueMode::NoWait => {
                    join(&mut transaction, name, id).await?
                }
                PermitDecision::Busy | PermitDecision::OtherPermits { .. } => {}
            }
            transaction.commit().await?;
            Ok(decision)
        }

        /// Locks the row of a lock, if there is one, and deletes permits that have ended.
        async fn lock_row(
            transaction: &mut <$database as sqlx::Database>::Connection,
            name: &str,
        ) -> Result<Option<LockedRow>, sqlx::Error> {
            let row = sqlx::query(LOCK_ROW).bind(name).fetch_optional(&mut *transaction).await?;
            let Some(row) = row else { return Ok(None) };
            let (owner, fencing_token, barred) =
                (row.try_get(0)?, row.try_get(1)?, row.try_get(3)?);
            let is_live = row.try_get::<i64, _>(2)? == 1;
            // This happens under the lock of the row, which every change of a permit takes first.
            sqlx::query(END_SHARES).bind(name).execute(&mut *transaction).await?;
            let shares = sqlx::query_as(SHARES).bind(name).fetch_all(transaction).await?;
            Ok(Some(LockedRow { owner, fencing_token, is_live, barred, shares, ahead: 0 }))
        }

        /// Writes that the row is shared, and ends with the last permit.
        async fn write_shared_row(
            transaction: &mut <$database as sqlx::Database>::Connection,
            name: &str,
            fencing_token: i64,
        ) -> Result<(), sqlx::Error> {
            let mode =
                sqlx::query(SHARE_ROW).bind(SHARED).bind(fencing_token).bind(name).bind(name);
            mode.execute(transaction).await.map(drop)
        }

        async fn renew_permit(
            connection: &mut <$database as sqlx::Database>::Connection,
            lock_ref: &LockRef,
            lease: Duration,
        ) -> Result<bool, sqlx::Error> {
            let name = lock_ref.name.as_str();
            let mut transaction = sqlx::Connection::begin_with(connection, BEGIN).await?;
            let Some(row) = lock_row(&mut transaction, name).await? else { return Ok(false) };
            let renew = sqlx::query(RENEW_SHARE).bind(microseconds(lease)).bind(name);
            let renew = renew.bind(lock_ref.id.to_string()).execute(&mut *transaction).await?;
            let is_held = renew.rows_affected() == 1 && row.owner == SHARED;
            if is_held {
                write_shared_row(&mut transaction, name, row.fencing_token).await?;
                transaction.commit().await?;
            }
            Ok(is_held)
        }

        /// Returns whether there was a permit to free.
        async fn release_permit(
            connection: &mut <$database as sqlx::Database>::Connection,
            name: &str,
            id: &str,
        ) -> Result<bool, sqlx::Error> {
            let mut transaction = sqlx::Connection::begin_with(connection, BEGIN).await?;
            let Some(row) = lock_row(&mut transaction, name).await? else { return Ok(false) };
            let free =
                sqlx::query(FREE_SHARE).bind(name).bind(id).execute(&mut *transaction).await?;
            // A permit that had ended seems alive if the database's clock was set back. An
            // exclusive holder that took the lock meanwhile keeps it.
            let was_held = free.rows_affected() == 1 && row.owner == SHARED;
            if was_held {
                write_shared_row(&mut transaction, name, row.fencing_token).await?;
            }
            transaction.commit().await.map(|()| was_held)
        }

        fn microseconds(duration: Duration) -> i64 {
            i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
        }
    };
}

pub(super) use sql_shares;

#[cfg(test)]
mod tests {
    use super::*;

    fn row(owner: &str, shares: &[(&str, i64)]) -> LockedRow {
        let shares = shares.iter().map(|(id, permits)| ((*id).to_owned(), *permits)).collect();
        let owner = owner.to_owned();
        LockedRow {
            owner,
            fencing_token: 7,
            is_live: true,
            barred: String::new(),
            shares,
            ahead: 0,
        }
    }

    #[test]
    fn permit_joins_others_with_their_token() {
        let part = |fencing_token| PermitDecision::Permit { fencing_token };
        assert_eq!(row("", &[]).decision("me", 2), part(8));
        assert_eq!(row(SHARED, &[("a", 2)]).decision("me", 2), part(7));
        assert_eq!(row(SHARED, &[("a", 2), ("b", 2)]).decision("me", 2), PermitDecision::Busy);
        assert_eq!(row(SHARED, &[("a", 2), ("me", 2)]).decision("me", 2), part(7));
        assert_eq!(
            row(SHARED, &[("a", 3)]).decision("me", 2),
            PermitDecision::OtherPermits { permits: 3 }
        );
        // All have ended, and no writer has held the lock since.
        assert_eq!(row(SHARED, &[]).decision("me", 2), part(7));
    }

    /// A regression: the database's clock was set back to before the end of the permit, and the
    /// permit counted as held beside a writer.
    #[test]
    fn ended_permit_does_not_count_beside_a_writer() {
        assert_eq!(row("other", &[("me", 2)]).decision("me", 2), PermitDecision::Busy);
    }

    #[test]
    fn permit_waits_for_the_writer_and_the_queue() {
        assert_eq!(row("other", &[]).decision("me", 2), PermitDecision::Busy);
        let over = LockedRow { is_live: false, ..row("other", &[]) };
        assert_eq!(over.decision("me", 2), PermitDecision::Permit { fencing_token: 8 });
        // A writer becomes a reader.
        assert_eq!(row("me", &[]).decision("me", 2), PermitDecision::Permit { fencing_token: 7 });
        let queued = LockedRow { ahead: 1, ..row(SHARED, &[]) };
        assert_eq!(queued.decision("me", 2), PermitDecision::Busy);
    }
}
