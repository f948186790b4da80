//! SeaORM in global transactions: entities, relations and active models over the resources of
//! [Handfast](handfast), in AT mode and by two-phase commit.
//!
//! An [`Orm`] takes the place of SeaORM's `DatabaseConnection`. Inside a global transaction what
//! SeaORM writes through it is a branch, undone if the global rolls back; outside it goes to the
//! database as through the pool.
//!
//! ```no_run
//! use handfast::Handfast;
//! use handfast_sea_orm::Orm;
//! use sea_orm::{ActiveModelTrait, ActiveValue::Set, DbErr};
//!
//! mod item {
//!     use sea_orm::entity::prelude::*;
//!
//!     #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
//!     #[sea_orm(table_name = "item")]
//!     pub struct Model {
//!         #[sea_orm(primary_key)]
//!         pub id: i32,
//!         pub name: String,
//!     }
//!
//!     #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
//!     pub enum Relation {}
//!
//!     impl ActiveModelBehavior for ActiveModel {}
//! }
//!
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! # #[cfg(feature = "sqlite")] {
//! let handfast = Handfast::connect("http://127.0.0.1:7091").application("shop").await?;
//! let pool = sqlx::SqlitePool::connect("sqlite:shop.db").await?;
//! let shop = Orm::on(&handfast.at(pool).await?);
//!
//! let order = handfast.transaction("new-item").run(async |_tx| {
//!     let lamp = item::ActiveModel { name: Set("lamp".to_owned()), ..Default::default() };
//!     let lamp = lamp.insert(&shop).await?; // A branch of its own, with its generated key.
//!     // Calls of other services, other databases.
//!     Ok::<_, DbErr>(lamp.id)
//! });
//! order.await?; // Ok: committed. Err: the row is gone again.
//! # }
//! # Ok(())
//! # }
//! ```
//!
//! | to | use |
//! | --- | --- |
//! | give SeaORM a resource | [`Orm::on`] |
//! | run several statements as one branch | SeaORM's `TransactionTrait`: `begin`, `transaction` |
//! | the same for rows that many want | [`Orm::repeatable_transaction`] |
//! | nest transactions, as savepoints | `begin` and `transaction` of an [`OrmTransaction`] |
//! | emit an event in the local transaction | [`OrmTransaction::emit`] |
//! | know the stable code of a refusal | [`cause`], [`Cause::code`] |
#![warn(missing_docs)]

mod error;
mod local;
mod nesting;
mod options;
mod orm;
mod resource;
mod sent;
mod transaction;
mod values;

pub use error::{Cause, OrmError, cause};
pub use orm::Orm;
pub use resource::OrmResource;
pub use transaction::OrmTransaction;

/// The pages for users: their fragments are compiled as they stand.
#[cfg(doctest)]
mod pages {
    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../sea-orm/README.md")]
    struct CrateReadme;

    #[cfg(feature = "sqlite")]
    #[doc = include_str!("../../docs/sea-orm.md")]
    struct SeaOrmPage;
}
