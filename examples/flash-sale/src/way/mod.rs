//! The four ways to sell a unit.

mod locked;
mod unlocked;

use anyhow::Result;
use clap::ValueEnum;
use handfast::{AtResource, Counter, Handfast};
use handfast_locks::{Locks, SegmentedLock};

use crate::stock::{Product, Stock};

/// A way to sell.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SaleMethod {
    /// All buyers wait for one lock, and read and write the row under it.
    Lock,
    /// The units lie in several rows with a lock each; a buyer takes any that is free.
    Segments,
    /// No lock: one UPDATE with a condition. If that can express the whole rule, it is enough.
    Guarded,
    /// The same UPDATE as a branch of a global transaction, which could have others.
    At,
}

/// The answer to a buyer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuyerAnswer {
    /// The buyer has a unit.
    Bought,
    /// Nothing is left, and nothing will be.
    SoldOut,
}

/// One way, with what it needs.
#[derive(Debug)]
pub(crate) enum Shop<DB: Product> {
    Lock { pool: sqlx::Pool<DB>, locks: Locks, name: String },
    Segments { pool: sqlx::Pool<DB>, segmented: SegmentedLock },
    Guarded { pool: sqlx::Pool<DB> },
    At { resource: AtResource<DB>, handfast: Handfast },
}

impl SaleMethod {
    pub(crate) const ALL: [Self; 4] = [Self::Lock, Self::Segments, Self::Guarded, Self::At];

    /// Returns the name for tables and scripts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Segments => "segments",
            Self::Guarded => "guarded",
            Self::At => "at",
        }
    }

    /// Returns the description for people.
    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::Lock => "a single lock",
            Self::Segments => "a lock in segments",
            Self::Guarded => "a guarded UPDATE",
            Self::At => "an AT transaction",
        }
    }

    /// Returns whether a plain read of no units is final. In AT mode it is not: a global that is
    /// not decided may still put a unit back.
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
        way: SaleMethod,
        stock: &Stock,
        pool: &sqlx::Pool<DB>,
        handfast: &Handfast,
        locks: &Locks,
        name: &str,
    ) -> Result<Keeper<DB>> {
        let pool = pool.clone();
        let shop = match way {
            SaleMethod::Lock => Self::Lock { pool, locks: locks.clone(), name: name.to_owned() },
            SaleMethod::Segments => {
                Self::Segments { pool, segmented: locks.segmented(name, stock.segments)? }
            }
            SaleMethod::Guarded => Self::Guarded { pool },
            SaleMethod::At => {
                // Buyers take units in any order, also while their globals are undecided.
                let at = handfast.at(pool).counter("stock", "units", Counter::at_least(0));
                Self::At { resource: at.await?, handfast: handfast.clone() }
            }
        };
        Ok(Keeper { way, stock: stock.clone(), shop })
    }

    async fn sell(&self, buyer: i64) -> Result<BuyerAnswer> {
        match self {
            Self::Lock { pool, locks, name } => locked::under_one(pool, locks, name, buyer).await,
            Self::Segments { pool, segmented } => locked::under_any(pool, segmented, buyer).await,
            Self::Guarded { pool } => unlocked::guarded(pool, buyer).await,
            Self::At { resource, handfast } => unlocked::in_global(resource, handfast, buyer).await,
        }
    }
}

/// A shop, with what buyers can know before they try.
#[derive(Debug)]
pub(crate) struct Keeper<DB: Product> {
    pub(crate) way: SaleMethod,
    pub(crate) stock: Stock,
    shop: Shop<DB>,
}

impl<DB: Product> Keeper<DB> {
    /// Sells a unit to a buyer, unless it is known beforehand that nothing is left. `is_confirmed`
    /// says whether a buyer has got that answer already.
    pub(crate) async fn serve(&self, buyer: i64, is_confirmed: bool) -> Result<BuyerAnswer> {
        if self.way.believes_a_look() || is_confirmed {
            let units: i64 = self.stock.look().await?.into_iter().sum();
            if units == 0 {
                return Ok(BuyerAnswer::SoldOut);
            }
        }
        self.shop.sell(buyer).await
    }
}
