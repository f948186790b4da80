//! A store whose connection to one node can be cut.

use std::num::NonZeroUsize;
use std::sync::Arc;

use handfast_test_services::{ClusterStore, Wire};
use reqwest::Url;

/// Returns the store as a node sees it whose connection can be cut.
pub(crate) fn behind_a_wire(store: &ClusterStore) -> (ClusterStore, Arc<Wire>) {
    let (ClusterStore::Sql(url) | ClusterStore::Etcd { endpoint: url, .. }) = store;
    let mut url: Url = url.parse().unwrap();
    let (host, port) = (url.host_str().unwrap().to_owned(), url.port().unwrap());
    let wire = Wire::to(host, port, b"no such bytes", NonZeroUsize::MIN).unwrap();
    url.set_ip_host(wire.address().ip()).unwrap();
    url.set_port(Some(wire.address().port())).unwrap();
    let url = String::from(url);
    let store = match store {
        ClusterStore::Sql(_) => ClusterStore::Sql(url),
        ClusterStore::Etcd { namespace, .. } => {
            ClusterStore::Etcd { endpoint: url, namespace: namespace.clone() }
        }
    };
    (store, wire)
}
