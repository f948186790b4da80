//! Compiles the `.proto` files without `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = protox::compile(["handfast/v1/coordinator.proto"], ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(out.join("handfast.v1.bin"), prost::Message::encode_to_vec(&files))?;
    // No `connect` constructors are generated: the service has a method of that name.
    tonic_prost_build::configure().build_transport(false).compile_fds(files)?;
    println!("cargo::rerun-if-changed=proto");
    Ok(())
}
