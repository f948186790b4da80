//! `handfast token new`.

use std::io::Write;

use super::{CliFailure, Exit};
use crate::security::{NewToken, Role};

/// Prints the secret and the line for the tokens file. The secret is not stored.
pub(super) fn draw(name: &str, role: Role, output: &mut dyn Write) -> Result<(), CliFailure> {
    let drawn = NewToken::draw(name, role)
        .map_err(|wrong| CliFailure::new(Exit::Usage, "HF-CLI-TOKEN-NAME", wrong))?;
    writeln!(output, "# for {name}, shown this once:\n{}", drawn.token)?;
    writeln!(output, "# for the coordinator's tokens file:\n{}", drawn.line)?;
    Ok(())
}
