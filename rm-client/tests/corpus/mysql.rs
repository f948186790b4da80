//! MariaDB.

use either::Either;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use handfast::AtTransaction;
use sqlx::error::UnexpectedNullError;
use sqlx::mysql::MySqlValueRef;
use sqlx::pool::PoolConnection;
use sqlx::{
    AssertSqlSafe, Column as _, ConnectOptions, Decode, Executor, MySql, Pool, Row, Transaction,
};

use crate::database::{
    Answer, Fresh, Generator, Product, TextRow, execution, fresh_name, query, server,
};
use crate::database::{steps, text_row};
use crate::entry::{Bound, Entry};

impl Product for MySql {
    const FILE: &'static str = "mariadb";
    const TITLE: &'static str = "MariaDB";
    const UNCHECKED: [&'static str; 2] =
        ["SET foreign_key_checks = 0", "SET foreign_key_checks = 1"];

    fn create() -> BoxFuture<'static, Fresh<Self>> {
        async {
            let url = server("HANDFAST_TEST_MYSQL");
            let options: sqlx::mysql::MySqlConnectOptions = url.parse().unwrap();
            let name = fresh_name();
            let mut server = options.clone().connect().await.unwrap();
            let create = format!("CREATE DATABASE {name} CHARACTER SET utf8mb4");
            server.execute(AssertSqlSafe(create)).await.unwrap();
            let pool = sqlx::mysql::MySqlPoolOptions::new().max_connections(4);
            (pool.connect_with(options.database(&name)).await.unwrap(), None)
        }
        .boxed()
    }

    /// Bytes are shown in hexadecimal, everything else as its text.
    fn list_tables() -> &'static str {
        "SELECT CAST(table_name AS CHAR), \
                CONCAT('SELECT ''', table_name, ''', CONCAT_WS(''|'', ', \
                    GROUP_CONCAT( \
                        IF(data_type IN ('binary', 'varbinary', 'blob', 'longblob', 'bit'), \
                            CONCAT('IFNULL(HEX(`', column_name, '`), ''NULL'')'), \
                            CONCAT('IFNULL(QUOTE(CAST(`', column_name, '` AS CHAR)), ''NULL'')')) \
                        ORDER BY ordinal_position), \
                    ') FROM `', table_name, '`') \
         FROM information_schema.columns JOIN information_schema.tables USING (table_name) \
         WHERE columns.table_schema = DATABASE() AND tables.table_schema = DATABASE() \
             AND table_type = 'BASE TABLE' \
         GROUP BY table_name ORDER BY MIN(create_time), table_name"
    }

    /// A counter is not left alone: InnoDB forgets numbers that an INSERT IGNORE took and did not
    /// use when it drops the table from its cache.
    fn generators(pool: &Pool<Self>) -> BoxFuture<'_, Vec<Generator>> {
        const SET: &str = "SELECT CAST(table_name AS CHAR), \
                CONCAT('ALTER TABLE `', table_name, '` AUTO_INCREMENT = ', auto_increment) \
             FROM information_schema.tables \
             WHERE table_schema = DATABASE() AND auto_increment IS NOT NULL";
        async {
            let rows = Self::texts(pool, SET).await.unwrap().into_iter();
            let generator = |row: TextRow| {
                let mut cells = row.into_iter();
                Generator { table: cells.next().flatten(), sql: cells.next().flatten().unwrap() }
            };
            rows.map(generator).collect()
        }
        .boxed()
    }

    /// MariaDB opens the tables of all databases when it is asked which tables refer to one.
    fn remove(pool: &Pool<Self>) -> BoxFuture<'_, ()> {
        async move {
            let name = pool.connect_options().get_database().unwrap().to_owned();
            let query = sqlx::raw_sql(AssertSqlSafe(format!("DROP DATABASE {name}")));
            query.execute(pool).await.unwrap();
        }
        .boxed()
    }

    /// The driver takes a date of zeroes for NULL, so its answer is not used.
    fn cell(value: MySqlValueRef<'_>) -> Result<Option<String>, sqlx::Error> {
        match <&[u8] as Decode<MySql>>::decode(value) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(bytes).into_owned())),
            Err(error) if error.is::<UnexpectedNullError>() => Ok(None),
            Err(error) => Err(sqlx::Error::Decode(error)),
        }
    }

    execution!(MySql);
}
