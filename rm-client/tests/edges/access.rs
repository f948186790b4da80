//! Users to whom the database does not show all rows or triggers.

use handfast::AtResource;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::{MySql, Postgres};

use crate::at::{Stage, TestDatabase, code};

/// A stage whose resource uses a role to which the policies of its table apply.
async fn tenants() -> Stage<Postgres> {
    let mut stage = Stage::<Postgres>::new(&[
        "CREATE TABLE doc (id INT PRIMARY KEY, tenant TEXT)",
        "ALTER TABLE doc ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY own ON doc USING (tenant = current_setting('app.tenant', true))",
    ])
    .await;
    let role = format!("tenant_{}", uuid::Uuid::new_v4().simple());
    for sql in [
        format!("CREATE ROLE {role} LOGIN"),
        format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}"),
    ] {
        Postgres::raw(&stage.pool, &sql).await.unwrap();
    }
    let options = stage.pool.connect_options().as_ref().clone().username(&role);
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    stage.resource = stage.handfast.at(pool).await.unwrap();
    stage
}

/// The undo saw no row, because its session belonged to no tenant, and took the row for undone. The
/// row stayed, its lock was released, and the global counted as rolled back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_that_a_policy_hides_from_their_undo_are_not_written() {
    let stage = tenants().await;
    let global = stage.begin().await;
    let tenant = "/* handfast: unprotected */ SELECT set_config('app.tenant', '7', true)";
    let statements = [tenant, "INSERT INTO doc VALUES (1, '7')"];
    let written = stage.try_branch(&global, &statements).await;
    stage.roll_back(global).await;
    assert_eq!(stage.value("SELECT COUNT(*) FROM doc").await.as_deref(), Some("0"));
    assert_eq!(code(&written.unwrap_err()), "HF-AT-ROW-SECURITY");
}

/// Such a function does what SET does, which is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_setting_made_by_a_function_is_a_setting() {
    let stage = Stage::<Postgres>::new(&[]).await;
    let global = stage.begin().await;
    for sql in [
        "SELECT set_config('search_path', 'other', true)",
        "WITH a AS (SELECT pg_catalog.\"set_config\" ('search_path', 'other', false)) TABLE a",
    ] {
        let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-SESSION-STATE", "{sql}");
    }
    stage.roll_back(global).await;
}

/// A resource of the stage's database whose account reads and writes rows, and nothing more.
async fn as_plain_user(stage: &Stage<MySql>) -> AtResource<MySql> {
    let user = format!("crud_{}", &uuid::Uuid::new_v4().simple().to_string()[..20]);
    let create = format!("CREATE USER '{user}' IDENTIFIED BY 'crud'");
    MySql::raw(&stage.pool, &create).await.unwrap();
    let database = stage.value("SELECT DATABASE()").await.unwrap();
    let grant = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {database}.* TO '{user}'");
    MySql::raw(&stage.pool, &grant).await.unwrap();
    let options = stage.pool.connect_options().as_ref().clone().username(&user).password("crud");
    let pool = MySqlPoolOptions::new().connect_with(options).await.unwrap();
    stage.handfast.at(pool).await.unwrap()
}

/// A resource whose account has these rights on some tables, and nothing more but `further`.
async fn as_user_of_tables(
    stage: &Stage<MySql>,
    tables: &[&str],
    further: Option<&str>,
) -> AtResource<MySql> {
    let user = format!("crud_{}", &uuid::Uuid::new_v4().simple().to_string()[..20]);
    let create = format!("CREATE USER '{user}' IDENTIFIED BY 'crud'");
    MySql::raw(&stage.pool, &create).await.unwrap();
    for table in tables {
        let grant = format!("GRANT SELECT, INSERT, UPDATE, DELETE ON {table} TO '{user}'");
        MySql::raw(&stage.pool, &grant).await.unwrap();
    }
    if let Some(further) = further {
        MySql::raw(&stage.pool, &format!("GRANT {further} ON *.* TO '{user}'")).await.unwrap();
    }
    let options = stage.pool.connect_options().as_ref().clone().username(&user).password("crud");
    let pool = MySqlPoolOptions::new().connect_with(options).await.unwrap();
    stage.handfast.at(pool).await.unwrap()
}

/// MariaDB shows no rule of a foreign key to an account that has its rights by table. The child
/// went along unseen, and did not come back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn children_go_along_for_accounts_with_rights_by_table() {
    let mut stage = Stage::<MySql>::new(&[
        "CREATE TABLE par (id INT PRIMARY KEY, code INT UNIQUE)",
        "CREATE TABLE chi (id INT PRIMARY KEY, p INT, \
         FOREIGN KEY (p) REFERENCES par (id) ON DELETE CASCADE)",
        "CREATE TABLE tag (id INT PRIMARY KEY, c INT, \
         FOREIGN KEY (c) REFERENCES par (code) ON DELETE SET NULL ON UPDATE CASCADE)",
        "INSERT INTO par VALUES (1, 10), (2, 20)",
        "INSERT INTO chi VALUES (10, 1), (20, 2)",
        "INSERT INTO tag VALUES (30, 10), (40, 20)",
    ])
    .await;
    let own = ["undo_log", "handfast_identity", "par"];
    for (tables, further, visible) in [
        (&["undo_log", "handfast_identity", "par", "chi", "tag"][..], None, true),
        (&["undo_log", "handfast_identity", "par", "chi", "tag"], Some("PROCESS"), true),
        (&own, Some("PROCESS"), false),
    ] {
        stage.resource = as_user_of_tables(&stage, tables, further).await;
        let dumps =
            async || [stage.dump("chi", &["id", "p"]).await, stage.dump("tag", &["id", "c"]).await];
        let before = dumps().await;
        let delete = "DELETE FROM par WHERE id = 1";
        if visible {
            stage.check_undone("par", &["id", "code"], &[delete]).await;
            assert_eq!(dumps().await, before);
        }
        let global = stage.begin().await;
        let refused = if visible { "UPDATE par SET code = 11 WHERE id = 1" } else { delete };
        let refused = stage.try_branch(&global, &[refused]).await.unwrap_err();
        assert_eq!(code(&refused), "HF-AT-CASCADE", "{refused}");
        stage.roll_back(global).await;
        assert_eq!(dumps().await, before);
    }
}

/// MariaDB shows triggers to a user that may write to the table, without the TRIGGER privilege.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_counts_for_users_without_its_privilege() {
    let mut stage = Stage::<MySql>::new(&[
        "CREATE TABLE item (id INT PRIMARY KEY)",
        "CREATE TABLE audit (id INT)",
        "CREATE TRIGGER audits AFTER INSERT ON item FOR EACH ROW INSERT INTO audit VALUES (NEW.id)",
    ])
    .await;
    stage.resource = as_plain_user(&stage).await;
    let global = stage.begin().await;
    let written = stage.try_branch(&global, &["INSERT INTO item VALUES (1)"]).await;
    assert_eq!(code(&written.unwrap_err()), "HF-AT-TRIGGER");
    stage.roll_back(global).await;
}

/// The dictionary of InnoDB spells names as files, and needs the privilege PROCESS. Without it the
/// referring tables are found in another way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn referring_tables_are_found_with_and_without_a_privilege() {
    let mut stage = Stage::<MySql>::new(&[
        "CREATE TABLE `pä-r` (id INT PRIMARY KEY)",
        "CREATE TABLE `ch#i/1` (id INT PRIMARY KEY, p INT, \
         FOREIGN KEY (p) REFERENCES `pä-r` (id) ON DELETE CASCADE)",
        "CREATE TABLE `Ch.2` (id INT PRIMARY KEY, p INT, \
         FOREIGN KEY (p) REFERENCES `pä-r` (id) ON DELETE SET NULL)",
        "INSERT INTO `pä-r` VALUES (1), (2)",
        "INSERT INTO `ch#i/1` VALUES (10, 1), (20, 2)",
        "INSERT INTO `Ch.2` VALUES (30, 1), (40, 2)",
    ])
    .await;
    for privileged in [true, false] {
        if !privileged {
            stage.resource = as_plain_user(&stage).await;
        }
        let before =
            (stage.dump("`ch#i/1`", &["id", "p"]).await, stage.dump("`Ch.2`", &["id", "p"]).await);
        stage.check_undone("`pä-r`", &["id"], &["DELETE FROM `pä-r` WHERE id = 1"]).await;
        let after =
            (stage.dump("`ch#i/1`", &["id", "p"]).await, stage.dump("`Ch.2`", &["id", "p"]).await);
        assert_eq!(after, before, "privileged: {privileged}");
    }
}
