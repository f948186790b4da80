//! The commands that guard tables, on a real PostgreSQL.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::net::Ipv4Addr;
use std::process::{Command, Output};

use handfast::Handfast;
use handfast_test_services::{CoordinatorProcess, free_address, without_configuration};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Executor, PgPool};

const PROGRAM: &str = env!("CARGO_BIN_EXE_handfast");
const VARIABLE: &str = "HANDFAST_TEST_POSTGRES";

/// A database with the client tables and a table of stock.
async fn database(purpose: &str) -> (PgPool, String) {
    let url = std::env::var(VARIABLE).unwrap_or_else(|_| {
        panic!("{VARIABLE} is not set: run the tests with `cargo xtask test`, which starts servers")
    });
    let options: PgConnectOptions = url.parse().unwrap();
    let name = format!("guard_{purpose}_{}", std::process::id());
    let mut server = options.clone().connect().await.unwrap();
    server.execute(AssertSqlSafe(format!("DROP DATABASE IF EXISTS {name}"))).await.unwrap();
    server.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
    let options = options.database(&name);
    let pool = PgPool::connect_with(options.clone()).await.unwrap();
    let handfast = Handfast::connect("http://127.0.0.1:1").application("tests").lazy().unwrap();
    handfast.migrate(&pool).await.unwrap();
    pool.execute("CREATE TABLE stock (id BIGINT PRIMARY KEY, units INT)").await.unwrap();
    let url = options.to_url_lossy().to_string();
    (pool, url)
}

fn guard(arguments: &[&str], url: &str) -> Output {
    let mut program = Command::new(PROGRAM);
    without_configuration(&mut program);
    program.arg("guard").args(arguments).args(["--database", url]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[tokio::test]
async fn a_table_is_guarded_watched_listed_and_left() {
    let (pool, url) = database("listed").await;
    let enabled = guard(&["enable", "stock"], &url);
    assert!(text(&enabled.stdout).starts_with("public.stock: refuse from 2"), "{enabled:?}");
    let listed = text(&guard(&["ls"], &url).stdout);
    assert!(listed.contains("public.stock") && listed.contains("not yet"), "{listed}");

    let watched = guard(&["enable", "public.stock", "--watch", "--at-once"], &url);
    assert!(text(&watched.stdout).starts_with("public.stock: watch from 2"), "{watched:?}");
    let left = "INSERT INTO guarded_row (row_digest, xid, branch_id, table_name, row_key) \
                VALUES ('\\x00', '127.0.0.1:7091:7', 8, 'public.stock', '1')";
    pool.execute(left).await.unwrap();
    let listed = text(&guard(&["status"], &url).stdout);
    assert!(listed.contains("127.0.0.1:7091:7") && listed.contains("no: ended"), "{listed}");
    assert!(listed.contains("handfast guard clean"), "{listed}");
    let json: serde_json::Value =
        serde_json::from_slice(&guard(&["ls", "--json"], &url).stdout).unwrap();
    assert_eq!(json["tables"][0]["mode"], "watch");
    assert_eq!(json["branches"][0]["holds_off_writes"], false);
    assert_eq!(text(&guard(&["clean"], &url).stdout), "cleaned: 1 branches\n");

    assert!(guard(&["disable", "stock"], &url).status.success());
    let again = guard(&["disable", "stock"], &url);
    assert_eq!(again.status.code(), Some(3), "{again:?}");
    assert!(text(&again.stderr).contains("HF-GUARD-NOT-GUARDED"), "{again:?}");
}

/// The note of a write from outside goes with the refusal of the rollback, so that an operator sees
/// it where the dirty write is shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dirty_write_is_shown_with_its_writer() {
    let (pool, url) = database("shown").await;
    pool.execute("INSERT INTO stock VALUES (1, 10)").await.unwrap();
    let watched = guard(&["enable", "stock", "--watch", "--at-once"], &url);
    assert!(watched.status.success(), "{watched:?}");

    let folder = tempfile::tempdir().unwrap();
    let [grpc, admin] = [(); 2].map(|()| free_address(Ipv4Addr::LOCALHOST.into()).unwrap());
    let mut serve = Command::new(PROGRAM);
    without_configuration(&mut serve);
    serve.args(["serve", "--data-dir"]).arg(folder.path());
    let mut coordinator = CoordinatorProcess::start(serve, [grpc, admin], None).unwrap();
    coordinator.wait_until_ready().unwrap();
    let handfast = Handfast::connect(format!("http://{grpc}")).application("shop").await.unwrap();
    let stock = handfast.at(pool.clone()).await.unwrap();
    let global = handfast.transaction("order").begin().await.unwrap();
    let xid = global.xid().clone();
    let change = sqlx::query("UPDATE stock SET units = 7 WHERE id = 1");
    global.scope(change.execute(&stock)).await.unwrap();
    let job = url.parse::<PgConnectOptions>().unwrap().application_name("nightly");
    let mut job = job.connect().await.unwrap();
    job.execute("UPDATE stock SET units = 3 WHERE id = 1").await.unwrap();
    // It needs an operator, which the caller is told by an error.
    let _ = global.rollback("test").await;

    let mut show = Command::new(PROGRAM);
    without_configuration(&mut show);
    show.args(["tx", "show", xid.as_str(), "--server", &format!("http://{admin}")]);
    let shown = text(&show.output().unwrap().stdout);
    let told =
        "the guard has seen UPDATE of public.stock 1 by handfast (nightly) from 127.0.0.1 at";
    assert!(shown.contains("needs_operator") && shown.contains(told), "{shown}");
}

#[test]
fn sqlite_is_refused() {
    let refused = guard(&["enable", "stock"], "sqlite::memory:");
    assert_eq!(refused.status.code(), Some(4), "{refused:?}");
    assert!(text(&refused.stderr).contains("HF-GUARD-DATABASE"), "{refused:?}");
}
