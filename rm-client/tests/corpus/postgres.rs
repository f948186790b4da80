//! PostgreSQL.

use either::Either;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use handfast::AtTransaction;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgValueRef;
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions, Executor, Pool, Postgres, Row, Transaction,
    TypeInfo, ValueRef,
};

use crate::database::{
    Answer, Fresh, Generator, Product, TextRow, execution, fresh_name, hex, query, server,
};
use crate::database::{steps, text_row};
use crate::entry::{Bound, Entry};

/// Microseconds from 2000 to 2026, from which on a time is the clock's.
const CLOCK_BEGINS: i64 = 820_454_400_000_000;

impl Product for Postgres {
    const FILE: &'static str = "postgres";
    const TITLE: &'static str = "PostgreSQL";
    const UNCHECKED: [&'static str; 2] =
        ["SET session_replication_role = replica", "SET session_replication_role = origin"];

    fn create() -> BoxFuture<'static, Fresh<Self>> {
        async {
            let url = server("HANDFAST_TEST_POSTGRES");
            let options: sqlx::postgres::PgConnectOptions = url.parse().unwrap();
            let options = options.options([("synchronous_commit", "off"), ("timezone", "UTC")]);
            let name = fresh_name();
            let mut server = options.clone().connect().await.unwrap();
            server.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
            let pool = sqlx::postgres::PgPoolOptions::new().max_connections(4);
            (pool.connect_with(options.database(&name)).await.unwrap(), None)
        }
        .boxed()
    }

    fn list_tables() -> &'static str {
        "SELECT relname::text, \
                format('SELECT %L, whole_row::text FROM %I whole_row', relname, relname) \
         FROM pg_class \
         WHERE relnamespace = current_schema::regnamespace AND relkind IN ('r', 'p') \
           AND NOT relispartition \
         ORDER BY oid"
    }

    fn generators(pool: &Pool<Self>) -> BoxFuture<'_, Vec<Generator>> {
        const SET: &str = "SELECT format('setval(%L, %s, %L)', \
                quote_ident(sequencename), coalesce(last_value, start_value), \
                last_value IS NOT NULL) \
             FROM pg_sequences WHERE schemaname = current_schema";
        async {
            let calls = Self::texts(pool, SET).await.unwrap();
            let calls: Vec<String> = calls.into_iter().flatten().flatten().collect();
            if calls.is_empty() {
                return Vec::new();
            }
            vec![Generator { table: None, sql: format!("SELECT {}", calls.join(", ")) }]
        }
        .boxed()
    }

    fn cell(value: PgValueRef<'_>) -> Result<Option<String>, sqlx::Error> {
        if value.is_null() {
            return Ok(None);
        }
        let type_name = value.type_info().name().to_owned();
        let bytes = value.as_bytes().map_err(sqlx::Error::Decode)?;
        let text = match (type_name.as_str(), <[u8; 8]>::try_from(bytes)) {
            ("TIMESTAMP" | "TIMESTAMPTZ", Ok(bytes))
                if i64::from_be_bytes(bytes) >= CLOCK_BEGINS =>
            {
                "<clock>".to_owned()
            }
            ("UUID", _) => uuid::Uuid::from_slice(bytes).unwrap().to_string(),
            _ => hex(bytes),
        };
        Ok(Some(text))
    }

    execution!(Postgres);
}
