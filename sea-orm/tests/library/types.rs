//! Values of every type that SeaORM has for all three databases, and those that PostgreSQL alone
//! has: inserted, changed and deleted in globals, and back as they were.

use sea_orm::entity::prelude::*;
use sea_orm::{
    ActiveValue::{NotSet, Set, Unchanged},
    ConnectionTrait, DbBackend, Iterable, Schema, Statement, TransactionTrait,
};

use crate::stage::{Stage, on_every_resource};

on_every_resource!(common, arrays, unsigned);

#[derive(Clone, Copy, Debug, PartialEq, Eq, EnumIter, DeriveActiveEnum)]
#[sea_orm(rs_type = "String", db_type = "Enum", enum_name = "cover")]
enum Cover {
    #[sea_orm(string_value = "hard")]
    Hard,
    #[sea_orm(string_value = "soft")]
    Soft,
}

/// A row with a column of each type.
mod sample {
    use sea_orm::entity::prelude::*;

    use super::Cover;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "sample")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: Uuid,
        pub truth: bool,
        pub small: i16,
        pub number: i32,
        pub big: i64,
        pub single: f32,
        pub double: f64,
        pub text: String,
        #[sea_orm(column_type = "Text")]
        pub long: String,
        pub bytes: Vec<u8>,
        #[sea_orm(column_type = "Decimal(Some((20, 6)))")]
        pub decimal: Decimal,
        pub json: Json,
        pub date: Date,
        pub time: Time,
        pub moment: DateTime,
        pub instant: DateTimeUtc,
        pub day: TimeDate,
        pub hour: TimeTime,
        pub cover: Cover,
        pub other_cover: Option<Cover>,
        pub other_number: Option<i64>,
        pub other_text: Option<String>,
        pub other_json: Option<Json>,
        pub other_id: Option<Uuid>,
        pub other_instant: Option<DateTimeWithTimeZone>,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

/// A row with what PostgreSQL alone has.
mod lists {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "lists")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i32,
        pub numbers: Vec<i32>,
        pub texts: Vec<String>,
        pub ids: Option<Vec<Uuid>>,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

fn row(number: i32) -> sample::Model {
    let date = Date::from_ymd_opt(2024, 2, 29).unwrap();
    let time = Time::from_hms_opt(23, 59, 58).unwrap();
    let moment = DateTime::new(date, time);
    sample::Model {
        id: Uuid::new_v4(),
        truth: number % 2 == 0,
        small: i16::MAX,
        number,
        big: i64::MIN,
        single: 1.5,
        double: -0.1,
        text: "it's a \"text\" \\ ü 字".to_owned(),
        long: "long ".repeat(2_000),
        bytes: vec![0, 1, 127, 128, 255],
        decimal: Decimal::new(-123_456_789_012_345, 6),
        json: json(number),
        date,
        time,
        moment,
        instant: moment.and_utc(),
        day: TimeDate::from_ordinal_date(1999, 365).unwrap(),
        hour: TimeTime::from_hms(0, 0, 1).unwrap(),
        cover: Cover::Hard,
        other_cover: None,
        other_number: Some(i64::MAX),
        other_text: None,
        other_json: Some(json(-1)),
        other_id: Some(Uuid::nil()),
        other_instant: Some(moment.and_utc().fixed_offset()),
    }
}

fn json(number: i32) -> Json {
    format!(r#"{{"list": [1, "two", null], "number": {number}}}"#).parse().unwrap()
}

async fn all(stage: &Stage) -> Vec<sample::Model> {
    use sea_orm::QueryOrder;
    let rows = sample::Entity::find().order_by_asc(sample::Column::Number);
    rows.all(&stage.past).await.unwrap()
}

async fn common(stage: Stage) {
    let schema = Schema::new(stage.backend());
    // One of the two columns of the type.
    if let Some(cover) = schema.create_enum_from_entity(sample::Entity).first() {
        stage.orm.execute(cover).await.unwrap();
    }
    stage.orm.execute(&schema.create_table_from_entity(sample::Entity)).await.unwrap();
    let (kept, changed, removed) = (row(1), row(2), row(3));
    let rows = [&kept, &changed, &removed].map(|row| sample::ActiveModel::from(row.clone()));
    sample::Entity::insert_many(rows).exec_without_returning(&stage.orm).await.unwrap();
    let before = all(&stage).await;
    assert_eq!(before, [kept.clone(), changed.clone(), removed.clone()]);
    let global = stage.begin().await;
    let work = global.scope(async {
        let local = stage.orm.begin().await.unwrap();
        let added = sample::ActiveModel::from(row(4)).insert(&local).await.unwrap();
        assert_eq!(added, sample::Model { id: added.id, ..row(4) });
        // Every column gets another value, or NULL, in one statement.
        let mut every = sample::ActiveModel::from(sample::Model {
            cover: Cover::Soft,
            other_cover: Some(Cover::Hard),
            other_number: None,
            other_text: Some(String::new()),
            other_json: None,
            other_id: None,
            other_instant: None,
            bytes: Vec::new(),
            json: json(0),
            truth: false,
            single: 0.25,
            double: 1e300,
            text: String::new(),
            long: "x".to_owned(),
            small: 0,
            big: 0,
            decimal: Decimal::ZERO,
            ..changed.clone()
        });
        for column in sample::Column::iter() {
            if !matches!(column, sample::Column::Id) {
                every.reset(column);
            }
        }
        every.id = Unchanged(changed.id);
        every.update(&local).await.unwrap();
        sample::Entity::delete_by_id(removed.id).exec(&local).await.unwrap();
        let found = sample::Entity::find()
            .filter(sample::Column::Cover.eq(Cover::Soft))
            .one(&local)
            .await
            .unwrap();
        assert_eq!(found.unwrap().double, 1e300);
        local.commit().await.unwrap();
    });
    work.await;
    stage.roll_back(global).await;
    assert_eq!(all(&stage).await, before);
}

async fn arrays(stage: Stage) {
    if stage.backend() != DbBackend::Postgres {
        return;
    }
    let schema = Schema::new(stage.backend());
    stage.orm.execute(&schema.create_table_from_entity(lists::Entity)).await.unwrap();
    let first = lists::ActiveModel {
        id: NotSet,
        numbers: Set(vec![3, 1, 2]),
        texts: Set(vec!["a".to_owned(), "b, \"c\"".to_owned()]),
        ids: Set(None),
    };
    let first = first.insert(&stage.orm).await.unwrap();
    let global = stage.begin().await;
    let work = global.scope(async {
        let mut changed = lists::ActiveModel::from(first.clone());
        changed.numbers = Set(Vec::new());
        changed.texts = Set(vec![String::new()]);
        changed.ids = Set(Some(vec![Uuid::nil()]));
        let changed = changed.update(&stage.orm).await.unwrap();
        assert_eq!(changed.ids, Some(vec![Uuid::nil()]));
    });
    work.await;
    stage.roll_back(global).await;
    assert_eq!(lists::Entity::find().all(&stage.past).await.unwrap(), [first]);
}

/// Numbers without a sign, which two of the databases know.
async fn unsigned(stage: Stage) {
    if stage.backend() == DbBackend::Postgres {
        return;
    }
    let global = stage.begin().await;
    let work = global.scope(async {
        let values = [Value::from(200_u8), 60_000_u16.into(), 4_000_000_000_u32.into()];
        let values = values.into_iter().chain([(1_u64 << 62).into()]);
        let sql = "SELECT ? AS a, ? AS b, ? AS c, ? AS d";
        let row = Statement::from_sql_and_values(stage.backend(), sql, values);
        let row = stage.orm.query_one_raw(row).await.unwrap().unwrap();
        let numbers: Vec<i64> = match stage.backend() {
            DbBackend::MySql => {
                let number = |at| row.try_get_by_index::<u64>(at).unwrap();
                (0..4).map(|at| i64::try_from(number(at)).unwrap()).collect()
            }
            DbBackend::Postgres | DbBackend::Sqlite | _ => {
                (0..4).map(|at| row.try_get_by_index(at).unwrap()).collect()
            }
        };
        assert_eq!(numbers, [200, 60_000, 4_000_000_000, 1 << 62]);
    });
    work.await;
    stage.roll_back(global).await;
}
