//! `RETURNING` on MariaDB, which has it for INSERT, REPLACE and DELETE. Its answer has rows and no
//! count.

use sqlx::MySql;

use crate::at::{Stage, code};

const TABLES: &[&str] = &[
    "CREATE TABLE item (id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, name VARCHAR(20) NOT NULL \
     UNIQUE, n INT DEFAULT 7, CHECK (n > 0))",
    "CREATE TABLE plain (k VARCHAR(9) NOT NULL PRIMARY KEY, n INT)",
    "CREATE TABLE part (id INT PRIMARY KEY, item BIGINT, \
     FOREIGN KEY (item) REFERENCES item (id) ON DELETE CASCADE)",
    "INSERT INTO item VALUES (1, 'one', 1), (2, 'two', 2), (3, 'three', 3)",
    "INSERT INTO plain VALUES ('a', 1), ('B', 2), ('c', 3)",
    "INSERT INTO part VALUES (1, 1)",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_that_return_rows_are_undone() {
    let stage = Stage::<MySql>::new(TABLES).await;
    for sql in [
        "INSERT INTO item (name) VALUES ('new'), ('newer') RETURNING id, UPPER(name) AS big",
        "INSERT INTO item (id, name) SELECT n + 10, k FROM plain RETURNING *",
        "INSERT IGNORE INTO item (id, name) VALUES (1, 'x'), (9, 'nine') RETURNING id",
        "INSERT INTO item (name) VALUES ('two') ON DUPLICATE KEY UPDATE n = 9 RETURNING n",
        "REPLACE INTO item (id, name) VALUES (2, 'other') RETURNING id",
        "DELETE FROM item WHERE n > 1 RETURNING id",
        "DELETE FROM item WHERE id = 1 RETURNING name",
    ] {
        stage.check_undone("item", &["id", "name", "n"], &[sql]).await;
    }
    for sql in [
        "DELETE FROM plain RETURNING k",
        "DELETE FROM plain WHERE n > (SELECT MIN(n) FROM item) RETURNING n, k",
        "REPLACE INTO plain VALUES ('A', 5), ('d', 6) RETURNING n",
    ] {
        stage.check_undone("plain", &["k", "n"], &[sql]).await;
    }
    // The application has its rows.
    let global = stage.begin().await;
    let (gone, added): (String, (i64, i32)) = global
        .scope(async {
            let mut local = stage.resource.begin().await?;
            let sql = "DELETE FROM plain WHERE n = ? RETURNING k";
            let gone = sqlx::query_scalar(sql).bind(2).fetch_one(&mut local).await?;
            let sql = "INSERT INTO item (name) VALUES (?) RETURNING id, n";
            let added = sqlx::query_as(sql).bind("bound").fetch_one(&mut local).await?;
            local.commit().await?;
            Ok::<_, sqlx::Error>((gone, added))
        })
        .await
        .unwrap();
    assert_eq!((gone.as_str(), added.1), ("B", 7));
    let left = "SELECT GROUP_CONCAT(k ORDER BY k) FROM plain";
    assert_eq!(stage.value(left).await.as_deref(), Some("a,c"));
    stage.roll_back(global).await;
    assert_eq!(stage.value(left).await.as_deref(), Some("a,B,c"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_returned_row_of_an_update_is_refused() {
    let stage = Stage::<MySql>::new(TABLES).await;
    let global = stage.begin().await;
    let sql = "UPDATE plain SET n = 9 RETURNING k";
    let refused = stage.try_branch(&global, &[sql]).await.unwrap_err();
    assert_eq!(code(&refused), "HF-AT-CLAUSE");
    stage.roll_back(global).await;
}
