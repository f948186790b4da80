//! Compiles the part of etcd's API that is used, without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["etcd.proto"], ["proto"])?;
    // A request that is repeated is cloned, and values are the bulk of it.
    let values = [".etcdserverpb.KeyValue.value", ".etcdserverpb.PutRequest.value"];
    let build = tonic_prost_build::configure().build_server(false).build_transport(false);
    values.into_iter().fold(build, |build, value| build.bytes(value)).compile_fds(files)?;
    Ok(())
}
