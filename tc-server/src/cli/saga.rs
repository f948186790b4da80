//! `handfast saga explain`: draws the saga of a JSON file. Needs no coordinator.

mod dot;
mod text;
mod tree;

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::Path;

use handfast_core::{Limits, SagaDefinition};
use handfast_proto::saga_json;

use super::{CliFailure, Exit};
use crate::grpc::Decoder;

/// Draws the saga of a file as text.
pub(super) fn draw(file: &Path, output: &mut dyn Write) -> Result<(), CliFailure> {
    Ok(output.write_all(text::drawn(&read(file)?).as_bytes())?)
}

/// Draws the saga of a file for Graphviz.
pub(super) fn draw_dot(file: &Path, output: &mut dyn Write) -> Result<(), CliFailure> {
    Ok(output.write_all(dot::drawn(&read(file)?).as_bytes())?)
}

/// Reads the saga of a file, and checks that a coordinator with the default limits would start it.
fn read(file: &Path) -> Result<SagaDefinition, CliFailure> {
    let wrong = |exit, code: &str, why: &dyn fmt::Display| {
        CliFailure::new(exit, code, format!("{}: {why}", file.display()))
    };
    let json =
        fs::read_to_string(file).map_err(|error| wrong(Exit::Usage, "HF-CLI-SAGA-FILE", &error))?;
    let wire = saga_json::definition(&json)
        .map_err(|error| wrong(Exit::Usage, saga_json::CODE, &error))?;
    let saga = Decoder::default()
        .definition(wire)
        .map_err(|bad| wrong(Exit::Refused, bad.code(), &bad))?;
    saga.check(&Limits::default())
        .map_err(|fault| wrong(Exit::Refused, "HF-TC-SAGA-INVALID", &fault))?;
    Ok(saga)
}
