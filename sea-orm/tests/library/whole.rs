//! Globals as services write them: several branches, two modes, an event, and one branch for the
//! statements of one transaction.

use handfast::TransactionError;
use handfast::outbox::Event;
use handfast_sea_orm::Orm;
use handfast_test_services::until;
use sea_orm::{
    ActiveModelTrait, ColumnTrait, DbErr, EntityTrait, ModelTrait, QueryFilter, TransactionTrait,
};

use crate::schema::{book, reader, shelf};
use crate::stage::{
    self, Mode, PATIENCE, Stage, new_book, new_reader, new_shelf, on_every_resource,
};

on_every_resource!(branches, two_libraries, events);

/// Statements of one transaction are one branch; by themselves they are one each.
async fn branches(stage: Stage) {
    if stage.mode == Mode::Xa {
        return; // Two-phase commit keeps no undo log that could be counted.
    }
    let global = stage.begin().await;
    let work = global.scope(async {
        let local = stage.orm.begin().await.unwrap();
        for label in ["a", "b", "c"] {
            new_shelf(label).insert(&local).await.unwrap();
        }
        local.commit().await.unwrap();
        assert_eq!(stage.undo_logs().await, 1);
        for label in ["d", "e"] {
            new_shelf(label).insert(&stage.orm).await.unwrap();
        }
        assert_eq!(stage.undo_logs().await, 3);
        shelf::Entity::find().all(&stage.orm).await.unwrap();
        assert_eq!(stage.undo_logs().await, 3, "a read is no branch");
    });
    work.await;
    stage.roll_back(global).await;
    assert_eq!(stage.undo_logs().await, 0);
    assert_eq!(stage.content().await.labels(), ["poems", "travel"]);
}

/// Moves a shelf from one library to another, where it must hold a thick book.
async fn move_shelf(from: &Orm, to: &Orm, pages: i32) -> Result<(), DbErr> {
    let sent = from.begin().await?;
    let travel = stage::shelf(&sent, "travel").await?;
    let books = book::Entity::delete_many().filter(book::Column::ShelfId.eq(travel.id));
    books.exec(&sent).await?;
    travel.delete(&sent).await?;
    sent.commit().await?;
    let received = to.begin().await?;
    let travel = new_shelf("travel").insert(&received).await?;
    new_book(&travel, "Alps on Foot", pages).insert(&received).await?;
    received.commit().await?;
    if pages > 300 { Ok(()) } else { Err(DbErr::Custom("too thin".to_owned())) }
}

/// Two databases in one global, which is run as services run it.
async fn two_libraries(stage: Stage) {
    let other = Stage::at_sqlite().await;
    let before = (stage.content().await, other.content().await);
    let moving = stage.handfast.transaction("move").timeout(PATIENCE);
    let refused = moving.run(async |_tx| move_shelf(&stage.orm, &other.orm, 10).await).await;
    assert!(matches!(refused, Err(TransactionError::RolledBack { .. })), "{refused:?}");
    assert_eq!((stage.content().await, other.content().await), before);
    let moving = stage.handfast.transaction("move").timeout(PATIENCE);
    moving.run(async |_tx| move_shelf(&stage.orm, &other.orm, 400).await).await.unwrap();
    // By two-phase commit the database commits a moment after the decision.
    until("the shelf has gone", async || stage.content().await.labels() == ["poems"]).await;
    assert_eq!(other.content().await.titles().last(), Some(&"Alps on Foot"));
}

/// An event is gone with the transaction that has emitted it, nested or global.
async fn events(stage: Stage) {
    const EVENTS: &str = "SELECT COUNT(*) FROM event_outbox";
    let emit = async || {
        let event = || Event::new("library", "7").payload("lent");
        let local = stage.orm.begin().await?;
        new_reader("Cleo", "card-3").insert(&local).await?;
        local.emit(&event()).await?;
        let inner = local.begin().await?;
        inner.emit(&event()).await?;
        inner.rollback().await?;
        local.commit().await
    };
    let global = stage.begin().await;
    global.scope(emit()).await.unwrap();
    stage.roll_back(global).await;
    assert_eq!(stage.count(EVENTS).await, 0);
    let global = stage.begin().await;
    global.scope(emit()).await.unwrap();
    stage.commit(global).await;
    assert_eq!(stage.count(EVENTS).await, 1);
    assert_eq!(reader::Entity::find().all(&stage.past).await.unwrap().len(), 3);
}
