//! The four ways to sell a unit.

mod locked;
mod unlocked;

use anyhow::Result;
use clap::ValueEnum;
use handfast::{AtResource, Handfast};
use handfast_locks::{Locks, Segmented};

use crate::stock::{Product, Stock};

/// A way to sell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Way {
    /// Everybody stands in line for one lock and reads and writes the row under it.
    Lock,
    /// The units lie in several rows with a lock each; a buyer takes any that is free.
    Segments,
    /// No lock: one UPDATE with a condition. Where it can say all there is to say, it is enough.
    Guarded,
    /// The same UPDATE as a branch of a global transaction, which could have others.
    At,
}

/// What a buyer is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// He has one.
    Bought,
    /// Nothing is left, and nothing will be.
    SoldOut,
}

/// One way, with what it needs.
#[derive(Debug)]
pub(crate) enum Shop<DB: Product> {
    Lock { pool: sqlx::Pool<DB>, locks: Locks, name: String },
    Segments { pool: sqlx::Pool<DB>, segmented: Segmented },
    Guarded { pool: sqlx::Pool<DB> },
    At { resource: AtResource<DB>, handfast: Handfast },
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Lock, Self::Segments, Self::Guarded, Self::At];

    /// For tables and scripts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Segments => "segments",
            Self::Guarded => "guarded",
            Self::At => "at",
        }
    }

    /// For people.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Lock => "a single lock",
            Self::Segments => "a lock in segments",
            Self::Guarded => "a guarded UPDATE",
            Self::At => "an AT transaction",
        }
    }

    /// Whether a row that shows no units has none for ever. A global that is not decided may still
    /// put a unit back, so in AT mode a plain look proves nothing.
    pub(crate) fn believes_a_look(self) -> bool {
        match self {
            Self::Lock | Self::Segments | Self::Guarded => true,
            Self::At => false,
        }
    }
}

impl<DB: Product> Shop<DB> {
    /// `name` is the lock's.
    pub(crate) async fn open(
        way: Way,
        stock: &Stock,
        pool: &sqlx::Pool<DB>,
        handfast: &Handfast,
        locks: &Locks,
        name: &str,
    ) -> Result<Keeper<DB>> {
        let pool = pool.clone();
        let shop = match way {
            Way::Lock => Self::Lock { pool, locks: locks.clone(), name: name.to_owned() },
            Way::Segments => {
                Self::Segments { pool, segmented: locks.segmented(name, stock.segments)? }
            }
            Way::Guarded => Self::Guarded { pool },
            Way::At => Self::At { resource: handfast.at(pool).await?, handfast: handfast.clone() },
        };
        Ok(Keeper { way, stock: stock.clone(), shop })
    }

    async fn sell(&self, buyer: i64) -> Result<Told> {
        match self {
            Self::Lock { pool, locks, name } => locked::under_one(pool, locks, name, buyer).await,
            Self::Segments { pool, segmented } => locked::under_any(pool, segmented, buyer).await,
            Self::Guarded { pool } => unlocked::guarded(pool, buyer).await,
            Self::At { resource, handfast } => unlocked::in_global(resource, handfast, buyer).await,
        }
    }
}

/// A shop and what can be seen from its window.
#[derive(Debug)]
pub(crate) struct Keeper<DB: Product> {
    pub(crate) way: Way,
    pub(crate) stock: Stock,
    shop: Shop<DB>,
}

impl<DB: Product> Keeper<DB> {
    /// Sells one to whoever has not seen before that nothing is left. `is_confirmed` says whether
    /// somebody has been told so already.
    pub(crate) async fn serve(&self, buyer: i64, is_confirmed: bool) -> Result<Told> {
        if self.way.believes_a_look() || is_confirmed {
            let units: i64 = self.stock.look().await?.into_iter().sum();
            if units == 0 {
                return Ok(Told::SoldOut);
            }
        }
        self.shop.sell(buyer).await
    }
}
