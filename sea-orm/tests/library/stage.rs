//! A coordinator, a database with a library in it, and a resource of one of the modes.

use std::time::Duration;

use handfast::{EndError, Global, GlobalStatus, Handfast, Xid};
use handfast_sea_orm::{Cause, Orm, cause};
use handfast_test_services::{EmbeddedCoordinator, until_some};
use sea_orm::{
    ActiveModelTrait, ActiveValue::Set, ConnectionTrait, DatabaseConnection, DbBackend, DbErr,
    EntityTrait, QueryOrder, Schema, Statement, prelude::Decimal,
};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Executor};
use tempfile::TempDir;

use crate::schema::{book, loan, reader, setting, shelf};

/// How long a global may take, longer than a busy machine does.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The way in which the database takes part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    At,
    Xa,
}

/// A library, its resource, and a way past the resource.
pub(crate) struct Stage {
    pub(crate) mode: Mode,
    pub(crate) handfast: Handfast,
    pub(crate) orm: Orm,
    /// SeaORM's own connection to the same database.
    pub(crate) past: DatabaseConnection,
    _directory: Option<TempDir>,
}

/// All rows of all tables.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) shelves: Vec<shelf::Model>,
    pub(crate) books: Vec<book::Model>,
    pub(crate) readers: Vec<reader::Model>,
    pub(crate) loans: Vec<loan::Model>,
    pub(crate) settings: Vec<setting::Model>,
}

fn server_url(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| {
        panic!("{variable} is not set: run the tests with `cargo xtask test`, which starts servers")
    })
}

fn fresh_name() -> String {
    format!("orm_{}", uuid::Uuid::new_v4().simple())
}

async fn connect() -> Handfast {
    let endpoint = EmbeddedCoordinator::shared().endpoint();
    Handfast::connect(endpoint).application("library").await.unwrap()
}

impl Stage {
    pub(crate) async fn at_postgres() -> Self {
        Self::postgres(Mode::At).await
    }

    pub(crate) async fn at_mysql() -> Self {
        Self::mysql(Mode::At).await
    }

    pub(crate) async fn xa_postgres() -> Self {
        Self::postgres(Mode::Xa).await
    }

    pub(crate) async fn xa_mysql() -> Self {
        Self::mysql(Mode::Xa).await
    }

    async fn postgres(mode: Mode) -> Self {
        let handfast = connect().await;
        let options: PgConnectOptions = server_url("HANDFAST_TEST_POSTGRES").parse().unwrap();
        let name = fresh_name();
        let mut server = options.clone().connect().await.unwrap();
        server.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        let pool = PgPoolOptions::new().max_connections(8);
        let pool = pool.connect_with(options.database(&name)).await.unwrap();
        handfast.migrate(&pool).await.unwrap();
        let orm = match mode {
            Mode::At => Orm::on(&handfast.at(pool.clone()).await.unwrap()),
            Mode::Xa => Orm::on(&handfast.xa(pool.clone()).node(&name[..32]).await.unwrap()),
        };
        Self::furnished(mode, handfast, orm, pool.into(), None).await
    }

    async fn mysql(mode: Mode) -> Self {
        let handfast = connect().await;
        let options: MySqlConnectOptions = server_url("HANDFAST_TEST_MYSQL").parse().unwrap();
        let name = fresh_name();
        let mut server = options.clone().connect().await.unwrap();
        let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4");
        server.execute(AssertSqlSafe(create)).await.unwrap();
        let pool = MySqlPoolOptions::new().max_connections(8);
        let pool = pool.connect_with(options.database(&name)).await.unwrap();
        handfast.migrate(&pool).await.unwrap();
        let orm = match mode {
            Mode::At => Orm::on(&handfast.at(pool.clone()).await.unwrap()),
            Mode::Xa => Orm::on(&handfast.xa(pool.clone()).node(&name[..32]).await.unwrap()),
        };
        Self::furnished(mode, handfast, orm, pool.into(), None).await
    }

    pub(crate) async fn at_sqlite() -> Self {
        let handfast = connect().await;
        let directory = tempfile::tempdir().unwrap();
        let options = SqliteConnectOptions::new()
            .filename(directory.path().join("library.db"))
            .create_if_missing(true)
            .busy_timeout(Duration::from_secs(60))
            .journal_mode(SqliteJournalMode::Wal);
        let pool = SqlitePoolOptions::new().max_connections(8);
        let pool = pool.connect_with(options).await.unwrap();
        handfast.migrate(&pool).await.unwrap();
        let orm = Orm::on(&handfast.at(pool.clone()).await.unwrap());
        Self::furnished(Mode::At, handfast, orm, pool.into(), Some(directory)).await
    }

    /// Makes the tables, through the resource and outside of a global, and fills them.
    async fn furnished(
        mode: Mode,
        handfast: Handfast,
        orm: Orm,
        past: DatabaseConnection,
        directory: Option<TempDir>,
    ) -> Self {
        let schema = Schema::new(orm.get_database_backend());
        orm.execute(&schema.create_table_from_entity(shelf::Entity)).await.unwrap();
        orm.execute(&schema.create_table_from_entity(book::Entity)).await.unwrap();
        orm.execute(&schema.create_table_from_entity(reader::Entity)).await.unwrap();
        orm.execute(&schema.create_table_from_entity(loan::Entity)).await.unwrap();
        orm.execute(&schema.create_table_from_entity(setting::Entity)).await.unwrap();
        let stage = Self { mode, handfast, orm, past, _directory: directory };
        stage.fill().await.unwrap();
        stage
    }

    /// Two shelves with three books, and two readers, one of whom has borrowed a book.
    async fn fill(&self) -> Result<(), DbErr> {
        let poems = new_shelf("poems").insert(&self.orm).await?;
        let travel = new_shelf("travel").insert(&self.orm).await?;
        let sonnets = new_book(&poems, "Sonnets", 154).insert(&self.orm).await?;
        new_book(&poems, "Odes", 88).insert(&self.orm).await?;
        new_book(&travel, "Alps on Foot", 310).insert(&self.orm).await?;
        let ann = new_reader("Ann", "card-1").insert(&self.orm).await?;
        new_reader("Ben", "card-2").insert(&self.orm).await?;
        let loan = loan::ActiveModel { days: Set(21), ..new_loan(&sonnets, &ann) };
        loan.insert(&self.orm).await?;
        let limit = setting::ActiveModel { name: Set("limit".to_owned()), value: Set(5) };
        limit.insert(&self.orm).await?;
        Ok(())
    }

    pub(crate) fn backend(&self) -> DbBackend {
        self.orm.get_database_backend()
    }

    /// Reads all tables past the resource: what is committed in the database.
    pub(crate) async fn content(&self) -> Content {
        Content::read(&self.past).await.unwrap()
    }

    pub(crate) async fn begin(&self) -> Global {
        let global = self.handfast.transaction("library").timeout(PATIENCE);
        global.begin().await.unwrap()
    }

    /// Commits a global, and waits until its branches know.
    pub(crate) async fn commit(&self, global: Global) {
        let xid = global.xid().clone();
        global.commit().await.unwrap();
        self.await_status(&xid, |status| status == GlobalStatus::Committed).await;
    }

    /// Rolls a global back, and waits until its branches are undone.
    pub(crate) async fn roll_back(&self, global: Global) {
        let xid = global.xid().clone();
        // Where the machine is busy the answer may be late; the rollback is certain then.
        if let Err(error) = global.rollback("test").await {
            assert!(matches!(error, EndError::RollingBack { .. }), "{error}");
        }
        self.await_status(&xid, |status| matches!(status, GlobalStatus::RolledBack(_))).await;
    }

    async fn await_status(&self, xid: &Xid, expected: impl Fn(GlobalStatus) -> bool) {
        until_some("the global has the status", async || {
            expected(self.handfast.outcome(xid).await.unwrap()).then_some(())
        })
        .await;
    }

    /// Runs work in a global that is rolled back, and makes sure that nothing is left of it; then
    /// again in one that is committed. Returns what the work returned and the content afterwards.
    pub(crate) async fn both_ends<T>(
        &self,
        work: impl AsyncFn(&Orm) -> Result<T, DbErr>,
    ) -> (T, Content) {
        let before = self.content().await;
        let global = self.begin().await;
        global.scope(work(&self.orm)).await.unwrap();
        if self.mode == Mode::At {
            assert_ne!(self.content().await, before, "the work changes something");
        }
        self.roll_back(global).await;
        assert_eq!(self.content().await, before, "all of it is undone");
        assert_eq!(self.count("SELECT COUNT(*) FROM undo_log WHERE log_status = 0").await, 0);
        let global = self.begin().await;
        let value = global.scope(work(&self.orm)).await.unwrap();
        self.commit(global).await;
        let after = self.content().await;
        assert_ne!(after, before, "all of it stays");
        (value, after)
    }

    /// Returns the number that a query returns past the resource.
    pub(crate) async fn count(&self, sql: &str) -> i64 {
        let row = Statement::from_string(self.backend(), sql);
        let row = self.past.query_one_raw(row).await.unwrap().unwrap();
        row.try_get_by_index(0).unwrap()
    }

    /// Returns how many branches the undo log holds. Two-phase commit writes none.
    pub(crate) async fn undo_logs(&self) -> i64 {
        self.count("SELECT COUNT(*) FROM undo_log WHERE log_status = 0").await
    }
}

impl Content {
    pub(crate) async fn read(db: &impl ConnectionTrait) -> Result<Self, DbErr> {
        Ok(Self {
            shelves: shelf::Entity::find().order_by_asc(shelf::Column::Id).all(db).await?,
            books: book::Entity::find().order_by_asc(book::Column::Id).all(db).await?,
            readers: reader::Entity::find().order_by_asc(reader::Column::Id).all(db).await?,
            loans: loan::Entity::find()
                .order_by_asc(loan::Column::BookId)
                .order_by_asc(loan::Column::ReaderId)
                .all(db)
                .await?,
            settings: setting::Entity::find().order_by_asc(setting::Column::Name).all(db).await?,
        })
    }

    pub(crate) fn titles(&self) -> Vec<&str> {
        self.books.iter().map(|book| book.title.as_str()).collect()
    }

    pub(crate) fn labels(&self) -> Vec<&str> {
        self.shelves.iter().map(|shelf| shelf.label.as_str()).collect()
    }
}

pub(crate) fn new_shelf(label: &str) -> shelf::ActiveModel {
    shelf::ActiveModel { label: Set(label.to_owned()), ..Default::default() }
}

pub(crate) fn new_book(shelf: &shelf::Model, title: &str, pages: i32) -> book::ActiveModel {
    book::ActiveModel {
        shelf_id: Set(shelf.id),
        title: Set(title.to_owned()),
        pages: Set(pages),
        price: Set(Decimal::new(1250, 2)),
        ..Default::default()
    }
}

pub(crate) fn new_reader(name: &str, card: &str) -> reader::ActiveModel {
    reader::ActiveModel {
        name: Set(name.to_owned()),
        card: Set(card.to_owned()),
        ..Default::default()
    }
}

pub(crate) fn new_loan(book: &book::Model, reader: &reader::Model) -> loan::ActiveModel {
    let (book_id, reader_id) = (Set(book.id), Set(reader.id));
    loan::ActiveModel { book_id, reader_id, ..Default::default() }
}

/// Returns the book of a title.
pub(crate) async fn book(db: &impl ConnectionTrait, title: &str) -> Result<book::Model, DbErr> {
    use sea_orm::{ColumnTrait, QueryFilter};
    let found = book::Entity::find().filter(book::Column::Title.eq(title)).one(db).await?;
    found.ok_or_else(|| DbErr::RecordNotFound(title.to_owned()))
}

/// Returns the shelf of a label.
pub(crate) async fn shelf(db: &impl ConnectionTrait, label: &str) -> Result<shelf::Model, DbErr> {
    use sea_orm::{ColumnTrait, QueryFilter};
    let found = shelf::Entity::find().filter(shelf::Column::Label.eq(label)).one(db).await?;
    found.ok_or_else(|| DbErr::RecordNotFound(label.to_owned()))
}

/// Returns the stable code of Handfast in an error, or the error itself.
pub(crate) fn code(error: &DbErr) -> String {
    cause(error).map_or_else(|| format!("{error:?}"), |cause| Cause::code(cause).to_owned())
}

/// Makes a test of each function, for each mode on each database.
macro_rules! on_every_resource {
    ($($name:ident),* $(,)?) => {
        crate::stage::on_resource!(at_postgres, $($name),*);
        crate::stage::on_resource!(at_mysql, $($name),*);
        crate::stage::on_resource!(at_sqlite, $($name),*);
        crate::stage::on_resource!(xa_postgres, $($name),*);
        crate::stage::on_resource!(xa_mysql, $($name),*);
    };
}

/// Makes a test of each function for each database in AT mode.
macro_rules! in_at_mode {
    ($($name:ident),* $(,)?) => {
        crate::stage::on_resource!(at_postgres, $($name),*);
        crate::stage::on_resource!(at_mysql, $($name),*);
        crate::stage::on_resource!(at_sqlite, $($name),*);
    };
}

macro_rules! on_resource {
    ($stage:ident, $($name:ident),*) => {
        mod $stage {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name(crate::stage::Stage::$stage().await).await;
                }
            )*
        }
    };
}

pub(crate) use {in_at_mode, on_every_resource, on_resource};
