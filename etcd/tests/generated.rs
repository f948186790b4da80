//! The generated code is that of `etcd.proto`. `UPDATE_EXPECT=1` writes it anew.

use std::fs;
use std::path::Path;

use expect_test::expect_file;

#[test]
fn generated_code_is_current() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let files = protox::compile(["etcd.proto"], [proto]).unwrap();
    let out = tempfile::tempdir().unwrap();
    let build = tonic_prost_build::configure().build_server(false).build_transport(false);
    // A request that is repeated is cloned, and values are the bulk of it.
    let values = [".etcdserverpb.KeyValue.value", ".etcdserverpb.PutRequest.value"];
    let build = values.into_iter().fold(build, |build, value| build.bytes(value));
    build.out_dir(out.path()).compile_fds(files).unwrap();
    let code = fs::read_to_string(out.path().join("etcdserverpb.rs")).unwrap();
    expect_file!["../generated/etcdserverpb.rs"].assert_eq(&code);
}
