//! Access to backends: certificates and users of etcd, users of ZooKeeper, and the errors of
//! clients without access.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "conformance/setup.rs"]
#[expect(dead_code, reason = "it serves the other tests too")]
mod setup;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;

use handfast_locks::{
    Backend, EtcdLocks, EtcdOptions, LockError, Locks, ReleaseOutcome, ZooKeeperLocks,
    ZooKeeperOptions,
};
use handfast_test_services::{DatabaseServer, ServerDirectory, ServerKind, until_some};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use zookeeper_client::{Acls, Client, CreateMode};

use setup::{LEASE, fresh, over, server};

/// Certificates of one authority, in files that a server under an account of its own can read.
struct Signed {
    folder: tempfile::TempDir,
    authority: CertifiedIssuer<'static, KeyPair>,
}

impl Signed {
    fn make() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        Self { folder, authority }
    }

    /// Makes a certificate and its key, in PEM.
    fn sign(&self, name: &str) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.authority).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    fn ca(&self) -> String {
        self.authority.pem()
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// Returns the settings of an etcd that has a certificate and asks clients for one.
    fn settings(&self) -> Vec<String> {
        let (certificate, key) = self.sign("127.0.0.1");
        let files = [
            ("cert-file", self.file("server.pem", &certificate)),
            ("key-file", self.file("server.key", &key)),
            ("trusted-ca-file", self.file("ca.pem", &self.ca())),
        ];
        let files = files.map(|(name, path)| format!("{name}={}", path.display()));
        files.into_iter().chain(["client-cert-auth=true".to_owned()]).collect()
    }
}

async fn start_etcd(settings: Vec<String>) -> DatabaseServer {
    let start = move || {
        let mut server =
            DatabaseServer::start(ServerKind::Etcd, &ServerDirectory::new()?, &|| Ok(()))?;
        if !settings.is_empty() {
            let settings: Vec<&str> = settings.iter().map(String::as_str).collect();
            server.restart_with(&settings)?;
        }
        anyhow::Ok(server)
    };
    tokio::task::spawn_blocking(start).await.unwrap().unwrap()
}

/// Takes a lock and releases it.
async fn check_usable(backend: impl Backend) {
    let locks = over(Arc::new(backend)).start().unwrap();
    let guard = locks.lock("orders/42").await.unwrap();
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
}

/// Checks the reason, once there is one: a busy machine may answer too late.
async fn is_denied<B: std::fmt::Debug>(
    connect: impl AsyncFn() -> Result<B, LockError>,
    words: &str,
) {
    let source = until_some("access is answered", async || match connect().await {
        Err(LockError::Refused { source }) if !source.is_final() => None,
        Err(LockError::Denied { source }) => Some(source),
        connected => panic!("{connected:?}"),
    });
    let source = source.await;
    assert!(source.is_final() && source.to_string().contains(words), "{source}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_is_reached_with_certificates() {
    let signed = Signed::make();
    let etcd = start_etcd(signed.settings()).await;
    let member = format!("https://{}", etcd.address());
    let (certificate, key) = signed.sign("orders");
    let known = EtcdOptions::new([&member]).tls_ca(signed.ca()).tls_identity(&certificate, &key);
    // It listens before it answers.
    let backend = loop {
        match EtcdLocks::connect_with(known.clone()).await {
            Err(LockError::Refused { source }) if !source.is_final() => {}
            connected => break connected.unwrap(),
        }
    };
    check_usable(backend).await;

    let others = Signed::make();
    for members in [vec![member.clone()], vec![member.clone(), "https://127.0.0.1:1".to_owned()]] {
        let stranger = EtcdOptions::new(members).tls_ca(others.ca());
        let stranger = stranger.tls_identity(&certificate, &key);
        let connect = async || EtcdLocks::connect_with(stranger.clone()).await;
        is_denied(connect, "invalid peer certificate").await;
    }
    let (certificate, key) = others.sign("orders");
    for unknown in [
        EtcdOptions::new([&member]).tls_ca(signed.ca()),
        EtcdOptions::new([&member]).tls_ca(signed.ca()).tls_identity(certificate, key),
    ] {
        let connect = async || EtcdLocks::connect_with(unknown.clone()).await;
        is_denied(connect, "received fatal alert").await;
    }
}

#[tokio::test]
async fn certificates_that_cannot_be_used_are_refused() {
    let ca = Signed::make().ca();
    let https = || EtcdOptions::new(["https://127.0.0.1:1"]);
    for (wrong, words) in [
        (https(), "needs the CA's certificate"),
        (https().tls_ca("/etc/ca.pem"), "the text, not the file's name"),
        (https().tls_ca(&ca).tls_identity("no certificate", "no key"), "certificates:"),
        (EtcdOptions::new(["http://127.0.0.1:1"]).tls_ca(&ca), "begin with https://"),
        (EtcdOptions::new(["etcd:2379"]), "begin with http:// or https://"),
    ] {
        let refused = EtcdLocks::connect_with(wrong).await;
        let Err(LockError::Refused { source }) = refused else { panic!("{words}: {refused:?}") };
        assert!(source.is_final() && source.to_string().contains(words), "{source}");
    }
}

/// Sends etcd a request as its `etcdctl` would.
fn post(etcd: &DatabaseServer, path: &str, body: &serde_json::Value) {
    let mut connection = TcpStream::connect(etcd.address()).unwrap();
    let (body, json) = (body.to_string(), "Content-Type: application/json");
    let length = body.len();
    write!(connection, "POST /v3/auth/{path} HTTP/1.0\r\n{json}\r\n").unwrap();
    write!(connection, "Content-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200"), "{path}: {answer}");
}

/// Makes the users of etcd: root, `orders` with the right to use the keys of locks, `guest` without
/// it.
fn make_users(etcd: &DatabaseServer) {
    for user in ["root", "orders", "guest"] {
        post(etcd, "user/add", &json!({ "name": user, "password": "secret" }));
    }
    post(etcd, "role/add", &json!({ "name": "locks" }));
    // From "handfast/" to "handfast0", which is the prefix.
    let ours =
        json!({ "permType": "READWRITE", "key": "aGFuZGZhc3Qv", "range_end": "aGFuZGZhc3Qw" });
    post(etcd, "role/grant", &json!({ "name": "locks", "perm": ours }));
    post(etcd, "user/grant", &json!({ "user": "orders", "role": "locks" }));
    post(etcd, "user/grant", &json!({ "user": "root", "role": "root" }));
    post(etcd, "enable", &json!({}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_knows_its_users() {
    let mut etcd = start_etcd(Vec::new()).await;
    let member = etcd.url();
    let user = |name, password| EtcdOptions::new([&member]).user(name, password);
    let connect = async || EtcdLocks::connect_with(user("orders", "secret")).await;
    is_denied(connect, "is not enabled").await;
    make_users(&etcd);
    let denied = [
        (user("orders", "guess"), "authentication failed"),
        (user("stranger", "secret"), "authentication failed"),
        (user("guest", "secret"), "permission denied"),
        (EtcdOptions::new([&member]), "user name is empty"),
    ];
    for (who, words) in denied {
        is_denied(async || EtcdLocks::connect_with(who.clone()).await, words).await;
    }
    let backend: Arc<dyn Backend> =
        Arc::new(EtcdLocks::connect_with(user("orders", "secret")).await.unwrap());
    let [locks, others] = [(); 2].map(|()| over(Arc::clone(&backend)).start().unwrap());
    let guard = locks.lock("orders/42").await.unwrap();
    let waiting = tokio::spawn(async move { others.lock("orders/42").await.unwrap() });

    // A restarted server has forgotten its tokens.
    let restart = move || etcd.restart().map(|()| etcd);
    let _etcd = tokio::task::spawn_blocking(restart).await.unwrap().unwrap();
    check_goes_on(&locks).await;
    assert!(guard.is_held());
    assert_eq!(guard.release().await.unwrap(), ReleaseOutcome::Released);
    assert!(waiting.await.unwrap().is_held());
}

async fn check_goes_on(locks: &Locks) {
    while let Err(error) = locks.try_lock(&fresh()).await {
        assert!(matches!(error, LockError::Unavailable { .. }), "{error:?}");
    }
}

/// Returns a folder of its own in the ZooKeeper of the test run.
async fn chroot() -> String {
    let cluster = server("HANDFAST_TEST_ZOOKEEPER");
    let client = Client::connect(&cluster).await.unwrap();
    let path = format!("/{}", fresh().replace('/', "-"));
    let folder = CreateMode::Persistent.with_acls(Acls::anyone_all());
    client.create(&path, b"", &folder).await.unwrap();
    format!("{cluster}{path}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zookeeper_knows_its_users() {
    let cluster = chroot().await;
    let options = || ZooKeeperOptions::new(&cluster, LEASE);
    let user = |name, password| options().user(name, password);
    let backend = ZooKeeperLocks::connect_with(user("orders", "secret")).await.unwrap();
    check_usable(backend).await;
    // Another session of the same user.
    check_usable(ZooKeeperLocks::connect_with(user("orders", "secret")).await.unwrap()).await;
    for other in [user("orders", "guess"), user("guest", "secret"), options()] {
        let connect = async || ZooKeeperLocks::connect_with(other.clone()).await;
        is_denied(connect, "another user").await;
    }
    // The nodes too belong to the user, not only their folders.
    let backend = ZooKeeperLocks::connect_with(user("orders", "secret")).await.unwrap();
    let locks = over(Arc::new(backend)).start().unwrap();
    let _guard = locks.lock("orders/42").await.unwrap();
    let client = Client::connector().with_auth("digest", b"orders:secret");
    let client = client.connect(&cluster).await.unwrap();
    let line = "/handfast/locks/orders%2F42";
    let nodes = client.list_children(line).await.unwrap();
    for path in [line.to_owned(), format!("{line}/{}", nodes[0])] {
        let (acls, _) = client.get_acl(&path).await.unwrap();
        assert!(acls.iter().all(|acl| acl.scheme() == "digest"), "{acls:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_zookeeper_user_does_not_share_with_all() {
    let cluster = chroot().await;
    check_usable(ZooKeeperLocks::connect(&cluster, LEASE).await.unwrap()).await;
    let user = ZooKeeperOptions::new(&cluster, LEASE).user("orders", "secret");
    let refused = ZooKeeperLocks::connect_with(user).await;
    let Err(LockError::Refused { source }) = refused else { panic!("{refused:?}") };
    assert!(source.to_string().contains("open to all users"), "{source}");
}
