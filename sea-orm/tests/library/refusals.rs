//! Refusals and failures: each comes through `DbErr` with its stable code, and nothing of the
//! statement is left.

use std::time::Duration;

use handfast_sea_orm::{Cause, cause};
use sea_orm::{
    ActiveModelTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, Schema, SqlErr, Statement,
    TransactionTrait, Value,
};

use crate::schema::{reader, setting, shelf};
use crate::stage::{self, Mode, Stage, code, new_book, new_reader, new_shelf, on_every_resource};

on_every_resource!(
    definitions,
    ends_of_transactions,
    constraints,
    values,
    finished_globals,
    cut_off,
);

/// Statements that AT mode cannot undo are refused before they run.
async fn definitions(stage: Stage) {
    let global = stage.begin().await;
    let table = Schema::new(stage.backend()).create_table_from_entity(setting::Entity);
    let refused = global.scope(stage.orm.execute(&table)).await.unwrap_err();
    if stage.mode == Mode::At {
        assert!(matches!(cause(&refused), Some(Cause::At(_))), "{refused:?}");
        assert_eq!(code(&refused), "HF-AT-DDL");
        assert!(refused.to_string().ends_with(&format!("({})", code(&refused))));
    }
    stage.roll_back(global).await;
}

/// No text ends a branch past Handfast.
async fn ends_of_transactions(stage: Stage) {
    let global = stage.begin().await;
    let work = global.scope(async {
        let local = stage.orm.begin().await.unwrap();
        new_shelf("a").insert(&local).await.unwrap();
        let refused = local.execute_unprepared("COMMIT").await.unwrap_err();
        let expected = match stage.mode {
            Mode::At => "HF-AT-TRANSACTION-CONTROL",
            Mode::Xa => "HF-XA-TRANSACTION-CONTROL",
        };
        assert_eq!(code(&refused), expected);
        local.commit().await.unwrap();
    });
    work.await;
    stage.roll_back(global).await;
    assert_eq!(stage.content().await.labels(), ["poems", "travel"]);
}

/// Errors of the database are SeaORM's to recognise, as without Handfast.
async fn constraints(stage: Stage) {
    let before = stage.content().await;
    let global = stage.begin().await;
    let work = global.scope(async {
        let twice = reader::Entity::insert(new_reader("Copy", "card-1")).exec(&stage.orm).await;
        let twice = twice.unwrap_err().sql_err();
        assert!(matches!(twice, Some(SqlErr::UniqueConstraintViolation(_))), "{twice:?}");
        let poems = stage::shelf(&stage.orm, "poems").await.unwrap();
        let nowhere = shelf::Model { id: poems.id + 1000, ..poems };
        let local = stage.orm.begin().await.unwrap();
        let orphan = new_book(&nowhere, "Orphan", 1).insert(&local).await.unwrap_err();
        let orphan = (orphan.sql_err(), orphan);
        assert!(
            matches!(orphan, (Some(SqlErr::ForeignKeyConstraintViolation(_)), _)),
            "{orphan:?}"
        );
        local.rollback().await.unwrap();
    });
    work.await;
    stage.roll_back(global).await;
    assert_eq!(stage.content().await, before);
}

/// Values that SeaORM's conversion would panic at.
async fn values(stage: Stage) {
    let mysql = stage.backend() == DbBackend::MySql;
    let too_large: Value = u64::MAX.into();
    let sql = if stage.backend() == DbBackend::Postgres { "SELECT $1" } else { "SELECT ?" };
    let select = |value: Value| Statement::from_sql_and_values(stage.backend(), sql, [value]);
    let answer = stage.orm.query_one_raw(select(too_large.clone())).await;
    if mysql {
        answer.unwrap();
    } else {
        assert_eq!(code(&answer.unwrap_err()), "HF-ORM-VALUE");
    }
    let local = stage.orm.begin().await.unwrap();
    let array: Value = vec![1_i32, 2].into();
    let answer = local.query_all_raw(select(array)).await;
    if stage.backend() == DbBackend::Postgres {
        answer.unwrap();
    } else {
        assert_eq!(code(&answer.unwrap_err()), "HF-ORM-VALUE");
    }
    local.rollback().await.unwrap();
}

/// A branch that comes too late is refused and leaves nothing.
async fn finished_globals(stage: Stage) {
    let before = stage.content().await;
    let global = stage.begin().await;
    let xid = global.xid().clone();
    let local = global.scope(stage.orm.begin()).await.unwrap();
    new_shelf("late").insert(&local).await.unwrap();
    stage.roll_back(global).await;
    let late = local.commit().await.unwrap_err();
    assert!(code(&late).starts_with("HF-"), "{xid}: {late:?}");
    assert_eq!(stage.content().await, before);
}

/// A statement that is cut off takes its whole local transaction along.
async fn cut_off(stage: Stage) {
    let before = stage.content().await;
    let global = stage.begin().await;
    let work = global.scope(async {
        for wait in [0, 1, 3] {
            let local = stage.orm.begin().await.unwrap();
            new_shelf("a").insert(&local).await.unwrap();
            let inner = local.begin().await.unwrap();
            let changing = async {
                for label in ["b", "c", "d", "e"] {
                    new_shelf(label).insert(&inner).await?;
                }
                Ok::<_, DbErr>(())
            };
            let limit = Duration::from_millis(wait);
            if tokio::time::timeout(limit, changing).await.is_ok() {
                continue; // Dropped, it is rolled back as well.
            }
            let late = new_shelf("f").insert(&inner).await.unwrap_err();
            assert_eq!(code(&late), "HF-ORM-CUT-OFF");
            assert_eq!(code(&inner.commit().await.unwrap_err()), "HF-ORM-CUT-OFF");
            if wait == 0 {
                assert_eq!(code(&local.commit().await.unwrap_err()), "HF-ORM-CUT-OFF");
            } else {
                local.rollback().await.unwrap();
            }
        }
    });
    work.await;
    stage.commit(global).await;
    assert_eq!(stage.content().await, before);
}
