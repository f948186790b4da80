//! Layouts of the tables: a later one is used when all nodes read it.

use handfast_core::{Change, Epoch};
use handfast_test_services::until;
use tokio::sync::watch;

use crate::databases::on_every_kind;
use crate::sql_under_test::{Kind, Sql};
use crate::store_under_test::{LONG, SharedStore, StoreUnderTest, names, put};

on_every_kind!(batches_are_compressed_once_all_nodes_read_them);

/// A node of an earlier version by its own words.
const EARLIER: &str =
    r#"{"id": "earlier", "version": "0.0.9", "grpc": "h:1", "admin": "h:2", "seata": null}"#;

async fn batches_are_compressed_once_all_nodes_read_them<K: Kind>() {
    let shared = Sql::<K>::create().await;
    let leader = shared.process(LONG).await;
    // As the earlier version has made them.
    shared.execute("UPDATE tc_mark SET layout = 1").await;
    let (epoch, _) = leader.store.lead(Epoch(0)).await.unwrap();
    let noted = "INSERT INTO tc_node (namespace, id, node, seen) SELECT namespace, 'earlier', ";
    shared.execute(&format!("{noted}'{EARLIER}', until FROM tc_lease")).await;
    let (seen, mut nodes) = watch::channel(Vec::new());
    let announcing = tokio::spawn(leader.store.announce(seen));

    nodes.wait_for(|nodes| nodes.len() == 2).await.unwrap();
    leader.store.commit(epoch, alike(100)).await.unwrap();
    let large = "SELECT COUNT(*) FROM tc_journal WHERE LENGTH(batch) > 2000";
    let layout = "SELECT layout FROM tc_mark";
    assert_eq!((shared.number(layout).await, shared.number(large).await), (1, 1));
    shared.execute("DELETE FROM tc_node WHERE id = 'earlier'").await;
    until("the layout is raised", async || shared.number(layout).await == 2).await;
    // The process knows of it now.
    nodes.wait_for(|nodes| nodes.len() == 1).await.unwrap();
    leader.store.commit(epoch, alike(200)).await.unwrap();
    assert_eq!(shared.number(large).await, 1);

    announcing.abort();
    drop(leader);
    let (_, records) = shared.open().await.lead(Epoch(0)).await.unwrap();
    let expected = (100..150).chain(200..250).map(|number| (number, "alike".to_owned()));
    assert_eq!(names(&records), expected.collect::<Vec<_>>());
}

/// Returns a batch of globals that resemble each other.
fn alike(first: u64) -> Vec<Change> {
    (first..first + 50).flat_map(|number| put(number, "alike")).collect()
}
