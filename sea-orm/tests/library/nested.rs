//! Transactions in a transaction: savepoints.

use sea_orm::{
    ActiveModelTrait, DbErr, EntityTrait, SqlErr, TransactionError, TransactionSession,
    TransactionTrait,
};

use crate::schema::{book, loan, shelf};
use crate::stage::{Stage, code, new_book, new_reader, new_shelf, on_every_resource};

on_every_resource!(
    committed_and_rolled_back,
    dropped,
    closures,
    after_a_failed_statement,
    deep,
    outer_while_inner_is_open,
    used_after_the_end,
    root_dropped_first,
);

/// The changes of a nested transaction stay or go by themselves, and all go with the global.
async fn committed_and_rolled_back(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            new_shelf("a").insert(&local).await?;
            let inner = local.begin().await?;
            assert_eq!(inner.xid(), local.xid());
            new_shelf("b").insert(&inner).await?;
            inner.commit().await?;
            let inner = local.begin().await?;
            new_shelf("c").insert(&inner).await?;
            loan::Entity::delete_many().exec(&inner).await?;
            book::Entity::delete_many().exec(&inner).await?;
            inner.rollback().await?;
            new_shelf("d").insert(&local).await?;
            local.commit().await
        })
        .await;
    assert_eq!(after.labels(), ["poems", "travel", "a", "b", "d"]);
    assert_eq!(after.books.len(), 3);
}

/// A nested transaction that is dropped is rolled back before anything else happens.
async fn dropped(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            new_shelf("a").insert(&local).await?;
            {
                let inner = local.begin().await?;
                new_shelf("b").insert(&inner).await?;
                let innermost = inner.begin().await?;
                new_shelf("c").insert(&innermost).await?;
            }
            assert_eq!(shelf::Entity::find().all(&local).await?.len(), 3);
            {
                let inner = local.begin().await?;
                new_shelf("d").insert(&inner).await?;
            }
            // The drop just before the commit counts as well.
            local.commit().await
        })
        .await;
    assert_eq!(after.labels(), ["poems", "travel", "a"]);
}

/// Closures in closures, as SeaORM's users write them.
async fn closures(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let outcome = orm.transaction::<_, _, DbErr>(|local| {
                Box::pin(async move {
                    let essays = new_shelf("essays").insert(local).await?;
                    let refused = local.transaction::<_, (), DbErr>(|inner| {
                        Box::pin(async move {
                            new_shelf("gone").insert(inner).await?;
                            Err(DbErr::Custom("no".to_owned()))
                        })
                    });
                    let refused = refused.await.unwrap_err();
                    assert!(matches!(refused, TransactionError::Transaction(_)), "{refused:?}");
                    let kept = local.transaction::<_, (), DbErr>(|inner| {
                        Box::pin(async move {
                            new_book(&essays, "Of Truth", 12).insert(inner).await?;
                            Ok(())
                        })
                    });
                    kept.await.unwrap();
                    Ok(())
                })
            });
            outcome.await.map_err(|error| match error {
                TransactionError::Connection(error) | TransactionError::Transaction(error) => error,
            })
        })
        .await;
    assert_eq!(after.labels(), ["poems", "travel", "essays"]);
    assert_eq!(after.titles(), ["Sonnets", "Odes", "Alps on Foot", "Of Truth"]);
}

/// A statement that fails in a nested transaction leaves the one around it usable, also on
/// PostgreSQL.
async fn after_a_failed_statement(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            new_reader("Cleo", "card-3").insert(&local).await?;
            let inner = local.begin().await?;
            let twice = new_reader("Copy", "card-3").insert(&inner).await.unwrap_err();
            assert!(
                matches!(twice.sql_err(), Some(SqlErr::UniqueConstraintViolation(_))),
                "{twice:?}"
            );
            inner.rollback().await?;
            new_reader("Dan", "card-4").insert(&local).await?;
            local.commit().await
        })
        .await;
    let names: Vec<&str> = after.readers.iter().map(|reader| reader.name.as_str()).collect();
    assert_eq!(names, ["Ann", "Ben", "Cleo", "Dan"]);
}

/// A rollback takes along what was committed within.
async fn deep(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            let first = local.begin().await?;
            new_shelf("a").insert(&first).await?;
            let second = first.begin().await?;
            new_shelf("b").insert(&second).await?;
            let third = second.begin().await?;
            new_shelf("c").insert(&third).await?;
            third.commit().await?;
            second.rollback().await?;
            first.commit().await?;
            for round in 0..5 {
                let inner = local.begin().await?;
                new_shelf(&format!("round {round}")).insert(&inner).await?;
                if round % 2 == 0 { inner.commit().await? } else { inner.rollback().await? }
            }
            local.commit().await
        })
        .await;
    assert_eq!(after.labels(), ["poems", "travel", "a", "round 0", "round 2", "round 4"]);
}

/// While a transaction is nested in it, a transaction runs nothing and is not committed.
async fn outer_while_inner_is_open(stage: Stage) {
    let before = stage.content().await;
    let global = stage.begin().await;
    let work = global.scope(async {
        let local = stage.orm.begin().await.unwrap();
        let inner = local.begin().await.unwrap();
        let refused = new_shelf("a").insert(&local).await.unwrap_err();
        assert_eq!(code(&refused), "HF-ORM-NESTED-OPEN");
        assert_eq!(code(&local.begin().await.unwrap_err()), "HF-ORM-NESTED-OPEN");
        new_shelf("b").insert(&inner).await.unwrap();
        assert_eq!(code(&local.commit().await.unwrap_err()), "HF-ORM-NESTED-OPEN");
        // The outer one is gone with its commit.
        let late = new_shelf("c").insert(&inner).await.unwrap_err();
        assert_eq!(code(&late), "HF-ORM-ENDED");
        assert_eq!(code(&inner.commit().await.unwrap_err()), "HF-ORM-ENDED");
    });
    work.await;
    stage.commit(global).await;
    assert_eq!(stage.content().await, before);
}

/// A nested transaction ends with the one around it.
async fn used_after_the_end(stage: Stage) {
    let global = stage.begin().await;
    let work = global.scope(async {
        let local = stage.orm.begin().await.unwrap();
        let inner = local.begin().await.unwrap();
        let innermost = inner.begin().await.unwrap();
        inner.rollback().await.unwrap();
        let late = new_shelf("a").insert(&innermost).await.unwrap_err();
        assert_eq!(code(&late), "HF-ORM-ENDED");
        // The newer one is not taken for the one that was dropped late.
        let newer = local.begin().await.unwrap();
        new_shelf("b").insert(&newer).await.unwrap();
        drop(innermost);
        newer.commit().await.unwrap();
        TransactionSession::commit(local).await.unwrap();
    });
    work.await;
    stage.commit(global).await;
    assert_eq!(stage.content().await.labels(), ["poems", "travel", "b"]);
}

/// The local transaction ends with its root, also if nested transactions are still held.
async fn root_dropped_first(stage: Stage) {
    let global = stage.begin().await;
    let work = global.scope(async {
        let local = stage.orm.begin().await.unwrap();
        new_shelf("a").insert(&local).await.unwrap();
        let inner = local.begin().await.unwrap();
        drop(local);
        let late = new_shelf("b").insert(&inner).await.unwrap_err();
        assert_eq!(code(&late), "HF-ORM-ENDED");
        // The connection is free again, and the rows are not locked.
        new_shelf("c").insert(&stage.orm.begin().await.unwrap()).await.unwrap();
    });
    work.await;
    stage.commit(global).await;
    assert_eq!(stage.content().await.labels(), ["poems", "travel"]);
}
