//! `handfast serve`.

use super::{CliFailure, ConfigFlags};

pub(super) fn run(flags: ConfigFlags) -> Result<(), CliFailure> {
    let _config = flags.load(std::env::vars())?;
    Ok(())
}
