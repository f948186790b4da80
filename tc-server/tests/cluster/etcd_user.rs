//! Coordinators that are users of an etcd with authentication.

use std::error::Error;
use std::fs;

use handfast_server::serve::Server;
use handfast_test_services::{
    ClusterStore, DatabaseServer, ServerDirectory, ServerKind, cluster_config,
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::block_in_place;

/// Sends etcd a request as its `etcdctl` would.
async fn post(etcd: &DatabaseServer, path: &str, body: Value) {
    let url = format!("http://{}/v3/auth/{path}", etcd.address());
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let answer = http.post(url).body(body.to_string()).send().await.unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.text().await.unwrap());
}

/// Makes the users of etcd: root, `orders` with the right to use the keys of coordinators, `guest`
/// without it.
async fn make_users(etcd: &DatabaseServer) {
    for user in ["root", "orders", "guest"] {
        post(etcd, "user/add", json!({ "name": user, "password": "secret" })).await;
    }
    post(etcd, "role/add", json!({ "name": "coordinators" })).await;
    // From "/handfast/" to "/handfast0", which is the prefix.
    let (first, end) = ("L2hhbmRmYXN0Lw==", "L2hhbmRmYXN0MA==");
    let ours = json!({ "permType": "READWRITE", "key": first, "range_end": end });
    post(etcd, "role/grant", json!({ "name": "coordinators", "perm": ours })).await;
    post(etcd, "user/grant", json!({ "user": "orders", "role": "coordinators" })).await;
    post(etcd, "user/grant", json!({ "user": "root", "role": "root" })).await;
    post(etcd, "enable", json!({})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coordinator_is_a_user_of_etcd() {
    let start = || {
        let place = ServerDirectory::new()?;
        DatabaseServer::start(ServerKind::Etcd, &place, &|| Ok(()))
    };
    let etcd = block_in_place(start).unwrap();
    // Another test may have installed it: an error says that it is there.
    let _ = rustls::crypto::ring::default_provider().install_default();
    make_users(&etcd).await;
    let folder = TempDir::new().unwrap();
    let store = ClusterStore::Etcd { endpoint: etcd.url(), namespace: "orders".to_owned() };
    let start = async |user: &str, password: &str| {
        let mut config = cluster_config(&store, folder.path(), "one");
        let file = folder.path().join("password");
        fs::write(&file, format!("{password}\n")).unwrap();
        config.etcd.user = Some(user.to_owned());
        config.etcd.password_file = Some(file);
        Server::start(config).await
    };
    for (user, password, words) in
        [("orders", "guess", "authentication failed"), ("guest", "secret", "permission denied")]
    {
        let refused = start(user, password).await.map(|_| ()).unwrap_err();
        let text = with_sources(&refused);
        assert!(text.contains(words), "{text}");
    }
    let server = start("orders", "secret").await.unwrap();
    server.shutdown().await.unwrap();
}

fn with_sources(error: &dyn Error) -> String {
    let (mut text, mut source) = (error.to_string(), error.source());
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}
