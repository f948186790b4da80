//! Many rows at once, and upserts.

use sea_orm::sea_query::{Expr, ExprTrait, OnConflict};
use sea_orm::{
    ActiveValue::Set, ColumnTrait, ConnectionTrait, DbBackend, EntityTrait, QueryFilter,
    TransactionTrait, TryInsertResult,
};

use crate::schema::{book, reader, setting};
use crate::stage::{self, Stage, new_book, new_reader, on_every_resource};

on_every_resource!(
    many_inserted,
    many_returned,
    upserted,
    left_alone,
    many_upserted,
    many_updated,
    many_deleted,
);

fn set(name: &str, value: i64) -> setting::ActiveModel {
    setting::ActiveModel { name: Set(name.to_owned()), value: Set(value) }
}

/// `insert_many` answers with the last key, whichever way the database tells it.
async fn many_inserted(stage: Stage) {
    let (last, after) = stage
        .both_ends(async |orm| {
            let poems = stage::shelf(orm, "poems").await?;
            let books = ["Epics", "Elegies", "Haiku"].map(|title| new_book(&poems, title, 50));
            let inserted = book::Entity::insert_many(books).exec(orm).await?;
            Ok(inserted.last_insert_id.unwrap())
        })
        .await;
    assert_eq!(after.titles()[3..], ["Epics", "Elegies", "Haiku"]);
    // MySQL tells the first key of a statement, and SeaORM hands it on.
    let told = if stage.backend() == DbBackend::MySql { 3 } else { 5 };
    assert_eq!(after.books[told].id, last);
}

async fn many_returned(stage: Stage) {
    if stage.backend() == DbBackend::MySql {
        return; // SeaORM asks for no RETURNING there.
    }
    let (inserted, after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            let travel = stage::shelf(&local, "travel").await?;
            let books = [new_book(&travel, "By Train", 200), new_book(&travel, "By Sea", 300)];
            let inserted = book::Entity::insert_many(books).exec_with_returning(&local).await?;
            local.commit().await?;
            Ok(inserted)
        })
        .await;
    assert_eq!(after.books[3..], inserted);
}

/// An upsert updates the row that is there, and inserts where none is.
async fn upserted(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            for setting in [set("limit", 9), set("fee", 25)] {
                let update = OnConflict::column(setting::Column::Name)
                    .update_column(setting::Column::Value)
                    .to_owned();
                setting::Entity::insert(setting).on_conflict(update).exec(&local).await?;
            }
            local.commit().await
        })
        .await;
    let values: Vec<(&str, i64)> =
        after.settings.iter().map(|it| (it.name.as_str(), it.value)).collect();
    assert_eq!(values, [("fee", 25), ("limit", 9)]);
}

/// An upsert that leaves the row alone inserts where none is.
async fn left_alone(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            for (setting, expected) in [(set("limit", 9), false), (set("fee", 25), true)] {
                let nothing = OnConflict::column(setting::Column::Name)
                    .do_nothing_on([setting::Column::Name])
                    .to_owned();
                let inserted = setting::Entity::insert(setting)
                    .on_conflict(nothing)
                    .try_insert()
                    .exec_without_returning(&local)
                    .await?;
                // MySQL counts the row that was left alone.
                if local.get_database_backend() != DbBackend::MySql {
                    let is_inserted = matches!(inserted, TryInsertResult::Inserted(1));
                    assert_eq!(is_inserted, expected, "{inserted:?}");
                }
            }
            local.commit().await
        })
        .await;
    let values: Vec<i64> = after.settings.iter().map(|it| it.value).collect();
    assert_eq!(values, [25, 5]);
}

/// Several rows in one upsert, one of which computes its value from the row that is there.
async fn many_upserted(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            let add = OnConflict::column(setting::Column::Name)
                .value(
                    setting::Column::Value,
                    Expr::col((setting::Entity, setting::Column::Value)).add(100),
                )
                .to_owned();
            let rows = [set("limit", 1), set("fee", 2), set("days", 3)];
            setting::Entity::insert_many(rows)
                .on_conflict(add)
                .exec_without_returning(&local)
                .await?;
            local.commit().await
        })
        .await;
    let values: Vec<(&str, i64)> =
        after.settings.iter().map(|it| (it.name.as_str(), it.value)).collect();
    assert_eq!(values, [("days", 3), ("fee", 2), ("limit", 105)]);
}

async fn many_updated(stage: Stage) {
    let (rows, after) = stage
        .both_ends(async |orm| {
            let updated = book::Entity::update_many()
                .col_expr(book::Column::Pages, Expr::col(book::Column::Pages).add(10))
                .filter(book::Column::Pages.gt(100))
                .exec(orm)
                .await?;
            Ok(updated.rows_affected)
        })
        .await;
    assert_eq!(rows, 2);
    let pages: Vec<i32> = after.books.iter().map(|book| book.pages).collect();
    assert_eq!(pages, [164, 88, 320]);
}

async fn many_deleted(stage: Stage) {
    let (rows, after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            let more = ["card-7", "card-8"].map(|card| new_reader("More", card));
            reader::Entity::insert_many(more).exec(&local).await?;
            let deleted = reader::Entity::delete_many()
                .filter(reader::Column::Card.is_in(["card-2", "card-7", "card-9"]))
                .exec(&local)
                .await?;
            local.commit().await?;
            Ok(deleted.rows_affected)
        })
        .await;
    assert_eq!(rows, 2);
    let cards: Vec<&str> = after.readers.iter().map(|it| it.card.as_str()).collect();
    assert_eq!(cards, ["card-1", "card-8"]);
}
