//! Streams: rows as they arrive, from the resource and from a transaction, which lends its
//! connection to them.

use futures::TryStreamExt;
use sea_orm::{
    ActiveModelTrait, DbErr, EntityTrait, QueryOrder, Statement, StreamTrait, TransactionTrait,
};

use crate::schema::{book, shelf};
use crate::stage::{self, Stage, code, new_book, new_shelf, on_every_resource};

on_every_resource!(through_the_resource, within_a_transaction, left_early, failing);

async fn through_the_resource(stage: Stage) {
    let global = stage.begin().await;
    let work = global.scope(async {
        let books = book::Entity::find().order_by_asc(book::Column::Id);
        let mut books = books.stream(&stage.orm).await.unwrap();
        let mut titles = Vec::new();
        while let Some(book) = books.try_next().await.unwrap() {
            titles.push(book.title);
        }
        assert_eq!(titles, ["Sonnets", "Odes", "Alps on Foot"]);
    });
    work.await;
    stage.roll_back(global).await;
}

/// The rows of the transaction itself come too; meanwhile it has no connection for others.
async fn within_a_transaction(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            let poems = stage::shelf(&local, "poems").await?;
            for number in 0..50 {
                new_book(&poems, &format!("Song {number}"), number).insert(&local).await?;
            }
            let mut books = book::Entity::find().stream(&local).await?;
            assert!(books.try_next().await?.is_some());
            let refused = new_shelf("a").insert(&local).await.unwrap_err();
            assert_eq!(code(&refused), "HF-ORM-STREAM-OPEN");
            assert_eq!(code(&local.begin().await.unwrap_err()), "HF-ORM-STREAM-OPEN");
            let rest: Vec<book::Model> = books.try_collect().await?;
            assert_eq!(rest.len(), 52);
            let inner = local.begin().await?;
            let count = book::Entity::find().stream(&inner).await?;
            let count = count.try_fold(0, |count, _| async move { Ok(count + 1) }).await?;
            assert_eq!(count, 53);
            inner.commit().await?;
            local.commit().await
        })
        .await;
    assert_eq!(after.books.len(), 53);
}

/// A stream that is dropped gives the connection back.
async fn left_early(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            {
                let mut books = book::Entity::find().stream(&local).await?;
                assert!(books.try_next().await?.is_some());
            }
            drop(book::Entity::find().stream(&local).await?);
            new_shelf("a").insert(&local).await?;
            let mut shelves = shelf::Entity::find().stream(&local).await?;
            let mut count = 0;
            while let Some(shelf) = shelves.try_next().await? {
                assert!(!shelf.label.is_empty());
                count += 1;
            }
            assert_eq!(count, 3);
            drop(shelves);
            local.commit().await
        })
        .await;
    assert_eq!(after.labels(), ["poems", "travel", "a"]);
}

async fn failing(stage: Stage) {
    let local = stage.orm.begin().await.unwrap();
    let broken = Statement::from_string(stage.backend(), "SELECT * FROM no_such_table");
    let mut rows = local.stream_raw(broken.clone()).await.unwrap();
    let failed = rows.try_next().await.unwrap_err();
    assert!(matches!(failed, DbErr::Query(_)), "{failed:?}");
    drop(rows);
    local.rollback().await.unwrap();
    let mut rows = stage.orm.stream_raw(broken).await.unwrap();
    rows.try_next().await.unwrap_err();
}
