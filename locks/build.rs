//! Compiles what is said to etcd, without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    #[cfg(feature = "etcd")]
    {
        let files = protox::compile(["etcd.proto"], ["proto"])?;
        let build = tonic_prost_build::configure().build_server(false).build_transport(false);
        build.compile_fds(files)?;
    }
    Ok(())
}
