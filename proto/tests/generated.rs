//! The generated code is that of the `.proto` files. `UPDATE_EXPECT=1` writes it anew.

use std::path::Path;
use std::{env, fs};

use expect_test::expect_file;
use prost::Message;

#[test]
fn generated_code_is_current() {
    let proto = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let files = protox::compile(["handfast/v1/coordinator.proto"], [proto]).unwrap();
    let described = files.encode_to_vec();
    let out = tempfile::tempdir().unwrap();
    // No `connect` constructors are generated: the service has a method of that name.
    // Maps in the order of their keys: equal messages are equal bytes.
    let build = tonic_prost_build::configure().build_transport(false).btree_map(".");
    let build = build.out_dir(out.path());
    build.compile_fds(files).unwrap();
    let code = fs::read_to_string(out.path().join("handfast.v1.rs")).unwrap();
    expect_file!["../generated/handfast.v1.rs"].assert_eq(&code);

    let descriptors = Path::new(env!("CARGO_MANIFEST_DIR")).join("generated/handfast.v1.bin");
    if env::var_os("UPDATE_EXPECT").is_some() {
        fs::write(&descriptors, &described).unwrap();
    }
    assert!(fs::read(&descriptors).unwrap() == described, "the descriptors are outdated");
}
