//! Active models: insert, update, save, delete, with generated keys.

use sea_orm::{
    ActiveModelTrait,
    ActiveValue::{Set, Unchanged},
    DbBackend, DbErr, EntityTrait, IntoActiveModel, ModelTrait, TransactionTrait, TryIntoModel,
    prelude::Decimal,
};

use crate::schema::{book, loan, reader, shelf};
use crate::stage::{
    self, Mode, Stage, new_book, new_loan, new_reader, new_shelf, on_every_resource,
};

on_every_resource!(each_by_itself, inserted_alone, together, saved, relations_saved, reinserted);

/// Every statement is a branch of its own.
async fn each_by_itself(stage: Stage) {
    let before = stage.content().await;
    let (odes, after) = stage
        .both_ends(async |orm| {
            let essays = shelf::Entity::insert(new_shelf("essays")).exec(orm).await?;
            assert!(essays.last_insert_id > 0, "the key is generated");
            let odes = stage::book(orm, "Odes").await?;
            let changes = book::ActiveModel {
                id: Unchanged(odes.id),
                pages: Set(89),
                price: Set(Decimal::new(1999, 2)),
                remark: Set(Some("signed".to_owned())),
                ..Default::default()
            };
            let changes = book::Entity::update(changes).validate()?;
            changes.exec(orm).await?;
            stage::book(orm, "Alps on Foot").await?.delete(orm).await?;
            Ok(odes)
        })
        .await;
    assert_eq!(after.labels(), ["poems", "travel", "essays"]);
    assert_eq!(after.titles(), ["Sonnets", "Odes"]);
    let expected = book::Model {
        pages: 89,
        price: Decimal::new(1999, 2),
        remark: Some("signed".to_owned()),
        ..odes
    };
    assert_eq!(after.books[1], expected);
    assert_eq!(after.readers, before.readers);
}

/// In AT mode a branch is visible to the next one. By two-phase commit it is not, so that SeaORM
/// finds no row of its INSERT where it has to read it by itself.
async fn inserted_alone(stage: Stage) {
    let global = stage.begin().await;
    let essays = global.scope(new_shelf("essays").insert(&stage.orm)).await;
    match (stage.mode, stage.backend()) {
        (Mode::Xa, DbBackend::MySql) => {
            assert!(matches!(essays, Err(DbErr::RecordNotFound(_))), "{essays:?}");
        }
        _ => assert_eq!(essays.unwrap().label, "essays"),
    }
    stage.roll_back(global).await;
    assert_eq!(stage.content().await.labels(), ["poems", "travel"]);
}

/// All statements are one local transaction, which sees what it has written.
async fn together(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            assert!(local.xid().is_some());
            let maps = new_shelf("maps").insert(&local).await?;
            let atlas = new_book(&maps, "Atlas", 420).insert(&local).await?;
            assert_eq!(atlas.shelf_id, maps.id);
            let cleo = new_reader("Cleo", "card-3").insert(&local).await?;
            let loan = new_loan(&atlas, &cleo).insert(&local).await?;
            assert_eq!(loan.days, 14, "the default of the database comes back");
            let mut atlas = atlas.into_active_model();
            atlas.title = Set("Great Atlas".to_owned());
            let atlas = atlas.update(&local).await?;
            assert_eq!(stage::book(&local, "Great Atlas").await?, atlas);
            loan::Entity::delete_by_id((atlas.id, cleo.id)).exec(&local).await?;
            local.commit().await
        })
        .await;
    assert_eq!(after.labels(), ["poems", "travel", "maps"]);
    assert_eq!(after.titles(), ["Sonnets", "Odes", "Alps on Foot", "Great Atlas"]);
    assert_eq!(after.loans.len(), 1);
}

/// `save` inserts what has no key and updates what has one.
async fn saved(stage: Stage) {
    let (id, after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            let dan = new_reader("Dan", "card-4").save(&local).await?;
            let reader::ActiveModel { id: Unchanged(id), .. } = dan.clone() else {
                panic!("{dan:?} has a key");
            };
            let renamed = reader::ActiveModel { name: Set("Daniel".to_owned()), ..dan };
            let renamed = renamed.save(&local).await?.try_into_model()?;
            assert_eq!(renamed.id, id);
            local.commit().await?;
            Ok(id)
        })
        .await;
    let found: Vec<&reader::Model> = after.readers.iter().filter(|it| it.id == id).collect();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].name, "Daniel");
}

/// A tree of models is saved by SeaORM in a transaction of its own making: one branch.
async fn relations_saved(stage: Stage) {
    let ((), after) = stage
        .both_ends(async |orm| {
            let shelf = shelf::ActiveModel::builder()
                .set_label("letters")
                .add_book(
                    book::ActiveModel::builder()
                        .set_title("To a Friend")
                        .set_pages(60)
                        .set_price(Decimal::new(700, 2))
                        .add_reader(
                            reader::ActiveModel::builder().set_name("Eve").set_card("card-5"),
                        ),
                )
                .add_book(
                    book::ActiveModel::builder()
                        .set_title("From a Friend")
                        .set_pages(61)
                        .set_price(Decimal::new(800, 2)),
                );
            shelf.save(orm).await?;
            Ok(())
        })
        .await;
    assert_eq!(after.labels(), ["poems", "travel", "letters"]);
    let letters = after.shelves.last().unwrap();
    let titles: Vec<&str> = (after.books.iter())
        .filter(|book| book.shelf_id == letters.id)
        .map(|book| book.title.as_str())
        .collect();
    assert_eq!(titles, ["To a Friend", "From a Friend"]);
    assert_eq!(after.readers.last().unwrap().name, "Eve");
    assert_eq!(after.loans.len(), 2);
}

/// A row that is deleted and inserted again in one local transaction is undone to what it was.
async fn reinserted(stage: Stage) {
    let (ann, after) = stage
        .both_ends(async |orm| {
            let local = orm.begin().await?;
            let ann = reader::Entity::find_by_id(1).one(&local).await?.unwrap();
            loan::Entity::delete_many().exec(&local).await?;
            ann.clone().delete(&local).await?;
            let again = reader::ActiveModel { id: Set(ann.id), ..new_reader("Anna", "card-1") };
            again.insert(&local).await?;
            local.commit().await?;
            Ok(ann)
        })
        .await;
    assert_eq!(after.readers[0], reader::Model { name: "Anna".to_owned(), ..ann });
    assert!(after.loans.is_empty());
}
