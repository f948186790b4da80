//! Several coordinators on one store: one leads, the others pass requests on to it, and one of
//! them takes over when it goes.

#[cfg(test)]
mod cluster;
#[cfg(test)]
mod cut;
#[cfg(test)]
mod encrypted;
#[cfg(test)]
mod etcd_user;
#[cfg(test)]
mod follower;
#[cfg(test)]
mod processes;
#[cfg(test)]
mod seata;
#[cfg(test)]
mod seata_client;
#[cfg(test)]
mod shared;
#[cfg(test)]
mod takeover;

/// Makes one test a store of functions `async fn name<S: Shared>()`.
#[cfg(test)]
macro_rules! on_each_store {
    ($($case:ident),* $(,)?) => {
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case::<crate::shared::Postgres>().await;
                }
            )*
        }
        mod mariadb {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case::<crate::shared::MariaDb>().await;
                }
            )*
        }
        mod etcd {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    super::$case::<crate::shared::Etcd>().await;
                }
            )*
        }
    };
}

#[cfg(test)]
use on_each_store;
