//! Locks that are held in parts, in a third table: readers, permits.
//!
//! The lock's own row says that it is shared, and ends with the last part, so that whoever wants
//! all of it needs to look at nothing else. It is locked by whoever changes a part, in one short
//! transaction: reads, a decision, writes. A shared row stays shared after its last part has ended,
//! until somebody takes all: parts in between get the same fence.

/// The owner of a row whose lock is held in parts.
pub(super) const SHARED: &str = "shared";

/// A lock as it stands under the lock of its row.
pub(super) struct Standing {
    pub(super) owner: String,
    pub(super) fence: i64,
    pub(super) is_live: bool,
    /// Marks of tokens.
    pub(super) barred: String,
    /// Parts that have not ended: token, and of how many.
    pub(super) shares: Vec<(String, i64)>,
    /// How many wait longer.
    pub(super) ahead: i64,
}

/// What becomes of a request for a part.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Held, or held further.
    Part { fence: i64 },
    /// Not yet.
    Busy,
    /// Others hold parts of another size.
    Others { of: i64 },
}

impl Standing {
    pub(super) fn verdict(&self, token: &str, of: u32) -> Verdict {
        let is_shared = self.owner == SHARED;
        let has_part = is_shared && self.shares.iter().any(|(holder, _)| holder == token);
        if self.owner == token || has_part {
            return Verdict::Part { fence: self.fence };
        }
        if let Some((_, other)) = self.shares.iter().find(|(_, parts)| *parts != i64::from(of)) {
            return Verdict::Others { of: *other };
        }
        let is_taken = self.is_live && !self.owner.is_empty() && !is_shared;
        let is_full = self.shares.len() >= usize::try_from(of).unwrap_or(usize::MAX);
        if is_taken || is_full || self.ahead > 0 {
            return Verdict::Busy;
        }
        Verdict::Part { fence: self.fence + i64::from(!is_shared) }
    }
}

/// Implements what a backend does with parts, by the statements of its database.
macro_rules! sql_shares {
    ($locks:ty, $database:ty) => {
        impl $locks {
            /// One request for a part, in one transaction. Whoever lets go meanwhile waits for the
            /// row and then sees the queue with this one in it.
            async fn ask_part(&self, ask: &Ask, of: u32) -> Result<Answer, BackendError> {
                let mut call = Call::begin(&self.pool).await?;
                let answer = self.try_ask_part(&mut call, ask, of).await;
                call.end(answer)
            }

            async fn try_ask_part(
                &self,
                connection: &mut <$database as sqlx::Database>::Connection,
                ask: &Ask,
                of: u32,
            ) -> Result<Answer, BackendError> {
                let (name, token) = (ask.name.as_str(), ask.token.to_string());
                let verdict = try_part(connection, ask, &token, of).await.map_err(explain)?;
                match verdict {
                    Verdict::Part { fence } => {
                        // There may be room for one more.
                        wake(connection, name).await.map_err(explain)?;
                        Ok(Answer::granted(Fence::new(fence)))
                    }
                    Verdict::Busy => {
                        if ask.place == Place::Join {
                            let dead = sqlx::query(FORGET_DEAD).bind(name);
                            dead.execute(&mut *connection).await.map_err(explain)?;
                        }
                        let seen = look(connection, name, &token).await.map_err(explain)?;
                        Ok(seen.answer(Self::POLL))
                    }
                    Verdict::Others { of } => {
                        Err(BackendError::other_parts(u32::try_from(of).unwrap_or(u32::MAX)))
                    }
                }
            }
        }

        async fn try_part(
            connection: &mut <$database as sqlx::Database>::Connection,
            ask: &Ask,
            token: &str,
            of: u32,
        ) -> Result<Verdict, sqlx::Error> {
            let name = ask.name.as_str();
            sqlx::query(MAKE_ROW).bind(name).execute(&mut *connection).await?;
            let mut turn = sqlx::Connection::begin_with(&mut *connection, BEGIN).await?;
            let Some(mut standing) = lock_row(&mut turn, name).await? else {
                return Ok(Verdict::Busy);
            };
            standing.ahead = look(&mut turn, name, token).await?.ahead;
            let verdict = if standing.barred.contains(&mark(ask.token)) {
                Verdict::Busy
            } else {
                standing.verdict(token, of)
            };
            match verdict {
                Verdict::Part { fence } => {
                    let put = sqlx::query(PUT_SHARE).bind(name).bind(token).bind(&*ask.label);
                    let put = put.bind(i64::from(of)).bind(microseconds(ask.lease));
                    put.execute(&mut *turn).await?;
                    share_row(&mut turn, name, fence).await?;
                    forget(&mut turn, name, token).await?;
                }
                Verdict::Busy if ask.place != Place::None => join(&mut turn, name, token).await?,
                Verdict::Busy | Verdict::Others { .. } => {}
            }
            turn.commit().await?;
            Ok(verdict)
        }

        /// Locks the row of a lock, if there is one, and forgets parts that have ended.
        async fn lock_row(
            turn: &mut <$database as sqlx::Database>::Connection,
            name: &str,
        ) -> Result<Option<Standing>, sqlx::Error> {
            let row = sqlx::query(LOCK_ROW).bind(name).fetch_optional(&mut *turn).await?;
            let Some(row) = row else { return Ok(None) };
            let (owner, fence, barred) = (row.try_get(0)?, row.try_get(1)?, row.try_get(3)?);
            let is_live = row.try_get::<i64, _>(2)? == 1;
            sqlx::query(END_SHARES).bind(name).execute(&mut *turn).await?;
            let shares = sqlx::query_as(SHARES).bind(name).fetch_all(turn).await?;
            Ok(Some(Standing { owner, fence, is_live, barred, shares, ahead: 0 }))
        }

        /// The row is shared, and ends with the last part.
        async fn share_row(
            turn: &mut <$database as sqlx::Database>::Connection,
            name: &str,
            fence: i64,
        ) -> Result<(), sqlx::Error> {
            let share = sqlx::query(SHARE_ROW).bind(SHARED).bind(fence).bind(name).bind(name);
            share.execute(turn).await.map(drop)
        }

        async fn renew_part(
            connection: &mut <$database as sqlx::Database>::Connection,
            hold: &Hold,
            lease: Duration,
        ) -> Result<bool, sqlx::Error> {
            let name = hold.name.as_str();
            let mut turn = sqlx::Connection::begin_with(connection, BEGIN).await?;
            let Some(standing) = lock_row(&mut turn, name).await? else { return Ok(false) };
            let renew = sqlx::query(RENEW_SHARE).bind(microseconds(lease)).bind(name);
            let renew = renew.bind(hold.token.to_string()).execute(&mut *turn).await?;
            let is_held = renew.rows_affected() == 1 && standing.owner == SHARED;
            if is_held {
                share_row(&mut turn, name, standing.fence).await?;
                turn.commit().await?;
            }
            Ok(is_held)
        }

        /// Answers whether there was a part to free.
        async fn free_part(
            connection: &mut <$database as sqlx::Database>::Connection,
            name: &str,
            token: &str,
        ) -> Result<bool, sqlx::Error> {
            let mut turn = sqlx::Connection::begin_with(connection, BEGIN).await?;
            let Some(standing) = lock_row(&mut turn, name).await? else { return Ok(false) };
            let free = sqlx::query(FREE_SHARE).bind(name).bind(token).execute(&mut *turn).await?;
            // A part that had ended seems alive when the database's clock was set back. Whoever
            // took all of the lock meanwhile has it.
            let was_held = free.rows_affected() == 1 && standing.owner == SHARED;
            if was_held {
                share_row(&mut turn, name, standing.fence).await?;
            }
            turn.commit().await.map(|()| was_held)
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

    fn standing(owner: &str, shares: &[(&str, i64)]) -> Standing {
        let shares = shares.iter().map(|(token, of)| ((*token).to_owned(), *of)).collect();
        let owner = owner.to_owned();
        Standing { owner, fence: 7, is_live: true, barred: String::new(), shares, ahead: 0 }
    }

    #[test]
    fn a_part_joins_others_with_their_fence() {
        let part = |fence| Verdict::Part { fence };
        assert_eq!(standing("", &[]).verdict("me", 2), part(8));
        assert_eq!(standing(SHARED, &[("a", 2)]).verdict("me", 2), part(7));
        assert_eq!(standing(SHARED, &[("a", 2), ("b", 2)]).verdict("me", 2), Verdict::Busy);
        assert_eq!(standing(SHARED, &[("a", 2), ("me", 2)]).verdict("me", 2), part(7));
        assert_eq!(standing(SHARED, &[("a", 3)]).verdict("me", 2), Verdict::Others { of: 3 });
        // All ended: nobody has written since.
        assert_eq!(standing(SHARED, &[]).verdict("me", 2), part(7));
    }

    /// The database's clock was set back behind the end of the part.
    #[test]
    fn a_part_that_had_ended_counts_for_nothing_beside_a_writer() {
        assert_eq!(standing("other", &[("me", 2)]).verdict("me", 2), Verdict::Busy);
    }

    #[test]
    fn a_part_waits_for_the_writer_and_for_the_queue() {
        assert_eq!(standing("other", &[]).verdict("me", 2), Verdict::Busy);
        let over = Standing { is_live: false, ..standing("other", &[]) };
        assert_eq!(over.verdict("me", 2), Verdict::Part { fence: 8 });
        // A writer becomes a reader.
        assert_eq!(standing("me", &[]).verdict("me", 2), Verdict::Part { fence: 7 });
        let queued = Standing { ahead: 1, ..standing(SHARED, &[]) };
        assert_eq!(queued.verdict("me", 2), Verdict::Busy);
    }
}
