//! Options of transactions.

use sea_orm::{
    AccessMode, ActiveModelTrait, ConnectionTrait, DbBackend, DbErr, EntityTrait, IsolationLevel,
    Statement, TransactionError, TransactionTrait,
};

use crate::schema::shelf;
use crate::stage::{Mode, Stage, code, new_shelf, on_every_resource};

on_every_resource!(isolation_levels, access_modes, nested);

const SERIALIZABLE: Option<IsolationLevel> = Some(IsolationLevel::Serializable);

/// The level is that of the local transaction, or the transaction is refused.
async fn isolation_levels(stage: Stage) {
    let global = stage.begin().await;
    let work = global.scope(async {
        let local = stage.orm.begin_with_config(SERIALIZABLE, None).await;
        match stage.backend() {
            DbBackend::Postgres => {
                let local = local.unwrap();
                let shown = Statement::from_string(stage.backend(), "SHOW transaction_isolation");
                let shown = local.query_one_raw(shown).await.unwrap().unwrap();
                let level: String = shown.try_get_by_index(0).unwrap();
                assert_eq!(level, "serializable");
                new_shelf("a").insert(&local).await.unwrap();
                local.commit().await.unwrap();
            }
            DbBackend::MySql => {
                assert_eq!(code(&local.unwrap_err()), "HF-ORM-OPTIONS");
                let closure = stage.orm.transaction_with_config::<_, (), DbErr>(
                    |_| Box::pin(async { Ok(()) }),
                    SERIALIZABLE,
                    None,
                );
                let TransactionError::Connection(refused) = closure.await.unwrap_err() else {
                    panic!("the closure does not run");
                };
                assert_eq!(code(&refused), "HF-ORM-OPTIONS");
                new_shelf("a").insert(&stage.orm.begin().await.unwrap()).await.unwrap();
            }
            DbBackend::Sqlite | _ => {
                let local = local.unwrap();
                new_shelf("a").insert(&local).await.unwrap();
                local.commit().await.unwrap();
            }
        }
    });
    work.await;
    stage.roll_back(global).await;
    assert_eq!(stage.content().await.labels(), ["poems", "travel"]);
}

/// Outside of a global PostgreSQL can be told that nothing is written. A branch of AT mode writes
/// its undo log, and refuses.
async fn access_modes(stage: Stage) {
    let read_only = stage.orm.begin_with_config(None, Some(AccessMode::ReadOnly)).await;
    if stage.backend() == DbBackend::Postgres {
        let local = read_only.unwrap();
        assert_eq!(shelf::Entity::find().all(&local).await.unwrap().len(), 2);
        new_shelf("a").insert(&local).await.unwrap_err();
        local.rollback().await.unwrap();
    } else {
        assert_eq!(code(&read_only.unwrap_err()), "HF-ORM-OPTIONS");
    }
    let writing = stage.orm.begin_with_config(None, Some(AccessMode::ReadWrite)).await.unwrap();
    new_shelf("a").insert(&writing).await.unwrap();
    writing.commit().await.unwrap();
    if stage.backend() == DbBackend::Postgres && stage.mode == Mode::At {
        let global = stage.begin().await;
        let local = stage.orm.begin_with_config(None, Some(AccessMode::ReadOnly));
        assert_eq!(code(&global.scope(local).await.unwrap_err()), "HF-AT-SESSION-STATE");
        stage.roll_back(global).await;
    }
}

/// A nested transaction has the options of the one around it.
async fn nested(stage: Stage) {
    let local = stage.orm.begin().await.unwrap();
    let refused = local.begin_with_config(SERIALIZABLE, None).await.unwrap_err();
    assert_eq!(code(&refused), "HF-ORM-OPTIONS");
    let inner = local.begin_with_config(None, None).await.unwrap();
    new_shelf("a").insert(&inner).await.unwrap();
    inner.commit().await.unwrap();
    local.commit().await.unwrap();
    assert_eq!(stage.content().await.labels(), ["poems", "travel", "a"]);
}
