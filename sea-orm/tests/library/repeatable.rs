//! Transactions whose closure may run several times.

use std::sync::atomic::{AtomicU32, Ordering};

use handfast_test_services::{EmbeddedCoordinator, until};
use sea_orm::sea_query::{Expr, ExprTrait};
use sea_orm::{ActiveModelTrait, ColumnTrait, DbErr, EntityTrait, QueryFilter, TransactionTrait};

use crate::schema::setting;
use crate::stage::{Stage, code, in_at_mode, new_shelf, on_every_resource};

mod everywhere {
    use super::*;

    on_every_resource!(committed, refused, nested_within);

    async fn committed(stage: Stage) {
        let (id, after) = stage
            .both_ends(async |orm| {
                let label = String::from("essays");
                orm.repeatable_transaction(|local| {
                    let label = label.clone();
                    Box::pin(async move {
                        assert!(local.xid().is_some());
                        new_shelf("maps").insert(local).await?;
                        Ok(new_shelf(&label).insert(local).await?.id)
                    })
                })
                .await
            })
            .await;
        assert_eq!(after.labels(), ["poems", "travel", "maps", "essays"]);
        assert_eq!(after.shelves[3].id, id);
    }

    #[derive(Debug)]
    enum Failure {
        Full,
        Database(DbErr),
    }

    impl From<DbErr> for Failure {
        fn from(error: DbErr) -> Self {
            Self::Database(error)
        }
    }

    /// The closure's error comes out as it is, and its work is undone at once.
    async fn refused(stage: Stage) {
        let before = stage.content().await;
        let global = stage.begin().await;
        let work = stage.orm.try_repeatable_transaction(|local| {
            Box::pin(async move {
                new_shelf("maps").insert(local).await?;
                Err::<(), _>(Failure::Full)
            })
        });
        assert!(matches!(global.scope(work).await, Err(Failure::Full)));
        let failing = stage.orm.try_repeatable_transaction(|local| {
            Box::pin(async move {
                let limit = setting::ActiveModel {
                    name: sea_orm::ActiveValue::Set("limit".to_owned()),
                    value: sea_orm::ActiveValue::Set(1),
                };
                limit.insert(local).await?;
                Ok::<_, Failure>(())
            })
        });
        let failed = global.scope(failing).await.unwrap_err();
        assert!(matches!(&failed, Failure::Database(it) if it.sql_err().is_some()), "{failed:?}");
        stage.commit(global).await;
        assert_eq!(stage.content().await, before);
    }

    /// A nested transaction that the closure has dropped is not committed with the rest.
    async fn nested_within(stage: Stage) {
        let ((), after) = stage
            .both_ends(async |orm| {
                orm.repeatable_transaction(|local| {
                    Box::pin(async move {
                        new_shelf("a").insert(local).await?;
                        let inner = local.begin().await?;
                        new_shelf("b").insert(&inner).await?;
                        drop(inner);
                        let inner = local.begin().await?;
                        new_shelf("c").insert(&inner).await?;
                        inner.commit().await?;
                        let inner = local.begin().await?;
                        new_shelf("d").insert(&inner).await?;
                        Ok(())
                    })
                })
                .await
            })
            .await;
        assert_eq!(after.labels(), ["poems", "travel", "a", "c"]);
    }
}

mod at {
    use super::*;

    in_at_mode!(waiting);

    async fn add(stage: &Stage, runs: &AtomicU32) -> Result<(), DbErr> {
        stage
            .orm
            .repeatable_transaction(|local| {
                runs.fetch_add(1, Ordering::Relaxed);
                Box::pin(async move {
                    setting::Entity::update_many()
                        .col_expr(setting::Column::Value, Expr::col(setting::Column::Value).add(1))
                        .filter(setting::Column::Name.eq("limit"))
                        .exec(local)
                        .await?;
                    Ok(())
                })
            })
            .await
    }

    /// A row that another global holds is waited for with nothing held, by a repeat of the closure.
    async fn waiting(stage: Stage) {
        // The coordinator counts the waiters of all tests of this program.
        static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let _alone = ALONE.lock().await;
        let holder = stage.begin().await;
        let runs = AtomicU32::new(0);
        holder.scope(add(&stage, &runs)).await.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 1);
        let waiter = stage.begin().await;
        let (added, ()) = tokio::join!(waiter.scope(add(&stage, &runs)), async {
            let engine = EmbeddedCoordinator::shared().engine();
            until("the second global waits", async || {
                engine.view(|coordinator| coordinator.counts().waiters).await.unwrap() > 0
            })
            .await;
            stage.commit(holder).await;
        });
        added.unwrap_or_else(|error| panic!("{}", code(&error)));
        stage.commit(waiter).await;
        assert_eq!(runs.load(Ordering::Relaxed), 3);
        let setting = setting::Entity::find_by_id("limit").one(&stage.past).await.unwrap();
        assert_eq!(setting.unwrap().value, 7);
    }
}
