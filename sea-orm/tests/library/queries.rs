//! Reads: relations, joins, pages, cursors, locking reads; inside a local transaction, which sees
//! its own rows, and outside of a global.

use sea_orm::{
    ActiveModelTrait, ColumnTrait, ConnectionTrait, EntityLoaderTrait, EntityTrait,
    FromQueryResult, JoinType, LoaderTrait, ModelTrait, PaginatorTrait, QueryFilter, QueryOrder,
    QuerySelect, RelationTrait, Statement, TransactionTrait,
};

use crate::schema::{book, loan, reader, shelf};
use crate::stage::{self, Stage, new_book, new_loan, new_reader, new_shelf, on_every_resource};

on_every_resource!(related, loaded, paged, locked, selected, outside);

/// One to many and many to many, over rows that only this local transaction sees.
async fn related(stage: Stage) {
    let (names, _) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            let maps = new_shelf("maps").insert(&local).await?;
            let atlas = new_book(&maps, "Atlas", 420).insert(&local).await?;
            let globe = new_book(&maps, "Globe", 1).insert(&local).await?;
            let ben = reader::Entity::find().filter(reader::Column::Name.eq("Ben"));
            let ben = ben.one(&local).await?.unwrap();
            let cleo = new_reader("Cleo", "card-3").insert(&local).await?;
            for (book, reader) in [(&atlas, &ben), (&atlas, &cleo), (&globe, &cleo)] {
                new_loan(book, reader).insert(&local).await?;
            }
            let books = maps.find_related(book::Entity).all(&local).await?;
            assert_eq!(books, [atlas.clone(), globe]);
            let of_cleo = cleo.find_related(book::Entity).order_by_asc(book::Column::Id);
            assert_eq!(of_cleo.all(&local).await?, books);
            let shelves = shelf::Entity::find()
                .find_with_related(book::Entity)
                .order_by_asc(shelf::Column::Id)
                .order_by_asc(book::Column::Id)
                .all(&local)
                .await?;
            let counts: Vec<usize> = shelves.iter().map(|(_, books)| books.len()).collect();
            assert_eq!(counts, [2, 1, 2]);
            let with_shelf = book::Entity::find_by_id(atlas.id).find_also_related(shelf::Entity);
            assert_eq!(with_shelf.one(&local).await?, Some((atlas.clone(), Some(maps))));
            let readers = atlas.find_related(reader::Entity).order_by_asc(reader::Column::Name);
            let names = readers.all(&local).await?.into_iter().map(|reader| reader.name);
            let names: Vec<String> = names.collect();
            local.commit().await?;
            Ok(names)
        })
        .await;
    assert_eq!(names, ["Ben", "Cleo"]);
}

/// SeaORM's loaders read the rows of one side for many of the other.
async fn loaded(stage: Stage) {
    let global = stage.begin().await;
    let work = global.scope(async {
        let local = stage.orm.begin().await.unwrap();
        let poems = stage::shelf(&local, "poems").await.unwrap();
        let extra = new_book(&poems, "Ballads", 70).insert(&local).await.unwrap();
        let shelves = shelf::Entity::find().order_by_asc(shelf::Column::Id);
        let shelves = shelves.all(&local).await.unwrap();
        let books = shelves.load_many(book::Entity, &local).await.unwrap();
        assert_eq!(books.iter().map(Vec::len).collect::<Vec<_>>(), [3, 1]);
        assert!(books[0].contains(&extra));
        let readers = books[0].load_many_to_many(reader::Entity, loan::Entity, &local);
        let readers = readers.await.unwrap();
        assert_eq!(readers.iter().map(Vec::len).sum::<usize>(), 1);
        let smart = shelf::Entity::load().filter_by_id(poems.id).with(book::Entity);
        let smart = smart.one(&local).await.unwrap().unwrap();
        assert_eq!(smart.books.len(), 3);
        local.rollback().await.unwrap();
    });
    work.await;
    stage.roll_back(global).await;
}

async fn paged(stage: Stage) {
    let global = stage.begin().await;
    let work = global.scope(async {
        let local = stage.orm.begin().await.unwrap();
        let travel = stage::shelf(&local, "travel").await.unwrap();
        let books = (0..20).map(|number| new_book(&travel, &format!("Tour {number:02}"), number));
        book::Entity::insert_many(books).exec(&local).await.unwrap();
        let tours = book::Entity::find()
            .filter(book::Column::Title.starts_with("Tour"))
            .order_by_asc(book::Column::Title);
        let pages = tours.clone().paginate(&local, 8);
        assert_eq!(pages.num_items().await.unwrap(), 20);
        assert_eq!(pages.num_pages().await.unwrap(), 3);
        let third = pages.fetch_page(2).await.unwrap();
        assert_eq!(third.len(), 4);
        assert_eq!(third[3].title, "Tour 19");
        let mut cursor = book::Entity::find().cursor_by(book::Column::Pages);
        let found = cursor.after(15).before(88).all(&local).await.unwrap();
        assert_eq!(found.iter().map(|book| book.pages).collect::<Vec<_>>(), [16, 17, 18, 19]);
        assert_eq!(tours.count(&local).await.unwrap(), 20);
        local.rollback().await.unwrap();
    });
    work.await;
    stage.roll_back(global).await;
    assert_eq!(stage.content().await.books.len(), 3);
}

/// A locking read keeps other globals away from the row, in AT mode by a global lock.
async fn locked(stage: Stage) {
    let (pages, after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            let odes = book::Entity::find()
                .filter(book::Column::Title.eq("Odes"))
                .lock_exclusive()
                .one(&local)
                .await?
                .unwrap();
            let more = book::ActiveModel {
                id: sea_orm::ActiveValue::Unchanged(odes.id),
                pages: sea_orm::ActiveValue::Set(odes.pages + 1),
                ..Default::default()
            };
            more.update(&local).await?;
            local.commit().await?;
            Ok(odes.pages)
        })
        .await;
    assert_eq!(after.books[1].pages, pages + 1);
}

#[derive(Debug, PartialEq, FromQueryResult)]
struct PagesOfShelf {
    label: String,
    books: i64,
}

/// Columns of one's own choice, by the query builder and by SQL.
async fn selected(stage: Stage) {
    let global = stage.begin().await;
    let work = global.scope(async {
        let rows = shelf::Entity::find()
            .select_only()
            .column(shelf::Column::Label)
            .column_as(book::Column::Id.count(), "books")
            .join(JoinType::InnerJoin, shelf::Relation::Book.def())
            .group_by(shelf::Column::Label)
            .order_by_asc(shelf::Column::Label)
            .into_model::<PagesOfShelf>()
            .all(&stage.orm)
            .await
            .unwrap();
        let row = |label: &str, books| PagesOfShelf { label: label.to_owned(), books };
        assert_eq!(rows, [row("poems", 2), row("travel", 1)]);
        let sql = "SELECT COUNT(*) AS n FROM loan WHERE days > 20";
        let row = stage.orm.query_one_raw(Statement::from_string(stage.backend(), sql));
        assert_eq!(row.await.unwrap().unwrap().try_get::<i64>("", "n").unwrap(), 1);
        let none = Statement::from_string(stage.backend(), "SELECT 1 FROM loan WHERE days > 99");
        assert!(stage.orm.query_one_raw(none).await.unwrap().is_none());
    });
    work.await;
    stage.roll_back(global).await;
}

/// Outside of a global the resource is as the pool is.
async fn outside(stage: Stage) {
    let essays = new_shelf("essays").insert(&stage.orm).await.unwrap();
    let local = stage.orm.begin().await.unwrap();
    assert_eq!(local.xid(), None);
    new_book(&essays, "Of Truth", 12).insert(&local).await.unwrap();
    local.rollback().await.unwrap();
    let local = stage.orm.begin().await.unwrap();
    new_book(&essays, "Of Gardens", 14).insert(&local).await.unwrap();
    local.commit().await.unwrap();
    let content = stage.content().await;
    assert_eq!(content.titles(), ["Sonnets", "Odes", "Alps on Foot", "Of Gardens"]);
    assert_eq!(content.labels(), ["poems", "travel", "essays"]);
    assert_eq!(stage.undo_logs().await, 0);
    let kept = stage.orm.transaction::<_, (), sea_orm::DbErr>(|local| {
        Box::pin(async move {
            shelf::Entity::delete_by_id(essays.id + 1000).exec(local).await?;
            Ok(())
        })
    });
    kept.await.unwrap();
}
