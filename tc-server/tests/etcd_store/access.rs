//! Users of etcd: the rights that a coordinator needs, and the error of one without them.

use std::io::{Read, Write};
use std::net::TcpStream;

use handfast_core::Epoch;
use handfast_server::store::{EtcdOptions, Store, StoreError};
use handfast_test_services::DatabaseServer;
use serde_json::{Value, json};

use crate::setup::{Candidate, LONG, Model, Namespace, puts, start};

/// Sends etcd a request as its `etcdctl` would.
fn post(etcd: &DatabaseServer, path: &str, body: &Value) {
    let mut connection = TcpStream::connect(etcd.address()).unwrap();
    let body = body.to_string();
    let length = body.len();
    let head = format!("POST /v3/{path} HTTP/1.0\r\nContent-Length: {length}\r\n\r\n");
    connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{path}: {answer}");
}

/// Makes a user `tc` that may read and write the store's keys, and a user `other`.
fn make_users(etcd: &DatabaseServer) {
    // `/handfast/` and the key behind all of them, in base64.
    let keys = json!({"permType": "READWRITE", "key": "L2hhbmRmYXN0Lw==", "range_end": "L2hhbmRmYXN0MA=="});
    for name in ["root", "tc", "other"] {
        post(etcd, "auth/user/add", &json!({"name": name, "password": format!("{name}-password")}));
        post(etcd, "auth/role/add", &json!({"name": name}));
        post(etcd, "auth/user/grant", &json!({"user": name, "role": name}));
    }
    post(etcd, "auth/role/grant", &json!({"name": "tc", "perm": keys}));
    post(etcd, "auth/enable", &json!({}));
}

fn candidate(etcd: &DatabaseServer, name: &str, password: &str) -> Candidate {
    let options = EtcdOptions::new([etcd.url()]).user(name, password);
    Namespace::in_etcd([etcd.url()]).candidate_with(options, name, LONG)
}

#[test]
fn a_user_needs_the_rights_to_the_keys_alone() {
    let etcd = start();
    make_users(&etcd);
    let leader = candidate(&etcd, "tc", "tc-password");
    let (epoch, _) = leader.lead();
    let mut model = Model::default();
    // More than one checkpoint, each of which has etcd forget its history.
    for from in [0, 100, 200] {
        let batch = puts(from..from + 90, 60_000);
        leader.commit(epoch, batch.clone()).unwrap();
        model.apply(&batch);
    }
    model.check(leader.lead().1);
    for (name, password) in [("tc", "wrong"), ("other", "other-password")] {
        let denied = candidate(&etcd, name, password);
        let led = denied.run(denied.store.lead(Epoch(0))).map(drop);
        let Err(StoreError::Unusable { reason, .. }) = &led else { panic!("{name}: {led:?}") };
        assert!(reason.starts_with("etcd: "), "{reason}");
    }
}
