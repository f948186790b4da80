//! One suite of the contract of `Store`, run against every store, and what is particular to stores
//! in SQL databases. What is particular to the store in etcd is in `tests/etcd_store`.
//!
//! A store that is added implements [`StoreUnderTest`](store_under_test::StoreUnderTest) and, if
//! several processes share it, [`SharedStore`](store_under_test::SharedStore), and is named in the
//! macros below.

#[cfg(test)]
mod compaction;
#[cfg(test)]
mod contract;
#[cfg(test)]
mod databases;
#[cfg(test)]
mod etcd_under_test;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod fences;
#[cfg(test)]
mod gate;
#[cfg(test)]
mod layouts;
#[cfg(test)]
mod leads;
#[cfg(test)]
mod sql_under_test;
#[cfg(test)]
mod standby;
#[cfg(test)]
mod store_under_test;

/// Makes one test a store of functions `async fn name<S: StoreUnderTest>()`.
#[cfg(test)]
macro_rules! on_every_store {
    ($($case:ident),* $(,)?) => {
        crate::tests_on!(memory, crate::store_under_test::Memory, $($case),*);
        crate::tests_on!(embedded, crate::store_under_test::Embedded, $($case),*);
        crate::on_shared_stores!($($case),*);
    };
}

/// Makes one test a store of functions `async fn name<S: SharedStore>()`.
#[cfg(test)]
macro_rules! on_shared_stores {
    ($($case:ident),* $(,)?) => {
        crate::on_sql_stores!($($case),*);
        crate::tests_on!(etcd, crate::etcd_under_test::Etcd, $($case),*);
    };
}

/// Makes one test a database of functions `async fn name<S: SharedStore>()`.
#[cfg(test)]
macro_rules! on_sql_stores {
    ($($case:ident),* $(,)?) => {
        crate::tests_on!(
            postgres,
            crate::sql_under_test::Sql<crate::sql_under_test::Postgres>,
            $($case),*
        );
        crate::tests_on!(
            mariadb,
            crate::sql_under_test::Sql<crate::sql_under_test::MariaDb>,
            $($case),*
        );
    };
}

#[cfg(test)]
macro_rules! tests_on {
    ($name:ident, $store:ty, $($case:ident),*) => {
        mod $name {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case::<$store>().await;
                }
            )*
        }
    };
}

#[cfg(test)]
use {on_every_store, on_shared_stores, on_sql_stores, tests_on};
