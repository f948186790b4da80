//! `handfast saga`: what a coordinator has of sagas (`remote`), and `explain`, which draws the saga
//! of a JSON file and needs no coordinator.

mod dot;
mod remote;
mod text;
mod tree;

use std::fmt;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use handfast_core::{Limits, SagaDefinition};
use handfast_proto::saga_json;

use super::{CliFailure, Exit, ListRange, Remote};
use crate::admin::model::SagaStanding;
use crate::grpc::Decoder;

/// The commands about sagas.
#[derive(Debug, Subcommand)]
pub enum SagaCommand {
    /// Lists sagas, youngest first.
    Ls {
        /// Only those with this status.
        #[arg(long)]
        status: Option<SagaStanding>,
        /// Only those that this application started.
        #[arg(long)]
        application: Option<String>,
        /// Only those of this name.
        #[arg(long)]
        name: Option<String>,
        /// Only the one with this key.
        #[arg(long)]
        key: Option<String>,
        /// Only those that wait for this signal.
        #[arg(long, value_name = "STEP")]
        awaits: Option<String>,
        /// Only those with this label, such as order=42.
        #[arg(long, value_name = "NAME=VALUE")]
        label: Option<String>,
        /// Only those begun longer ago, such as 30s, 5m or 2h.
        #[arg(long)]
        older_than: Option<String>,
        #[command(flatten)]
        page: ListRange,
        #[command(flatten)]
        remote: Remote,
    },
    /// Shows a saga: its steps, their inputs and outputs, and its timeline.
    Show {
        #[command(flatten)]
        one: OneSaga,
        /// Only this step, such as reserve or billing/charge.
        #[arg(long)]
        step: Option<String>,
        /// The most bytes shown of each input and output, at most 65536.
        #[arg(long, value_name = "BYTES", default_value_t = 1_024)]
        payload_bytes: usize,
        #[command(flatten)]
        remote: Remote,
    },
    /// Starts the saga of a JSON file, or finds the one that has its key.
    Start {
        /// The file, as `handfast saga explain` takes it.
        file: PathBuf,
        /// The key: the same key is the same saga.
        #[arg(long)]
        key: String,
        /// The application in whose name it is started.
        #[arg(long, default_value = "operator")]
        application: String,
        /// A label to find it by, such as order=42; may be given several times.
        #[arg(long = "label", value_name = "NAME=VALUE", value_parser = label)]
        labels: Vec<(String, String)>,
        /// The reason, for the audit log.
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Ends a step that waits for a signal, such as the answer of a person.
    Signal {
        #[command(flatten)]
        one: OneSaga,
        /// The step, such as approval or billing/approval.
        signal: String,
        /// The step's output, as JSON; a text has quotation marks around it.
        #[arg(long, value_name = "JSON", default_value = "null")]
        payload: String,
        /// The reason, for the timeline and the audit log.
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Has a saga compensated, if its pivot has not begun.
    Cancel {
        #[command(flatten)]
        one: OneSaga,
        /// The reason, for the timeline and the audit log.
        #[arg(long, default_value = "")]
        reason: String,
        #[command(flatten)]
        remote: Remote,
    },
    /// Checks a saga's JSON file and draws it, without a coordinator.
    Explain {
        /// The file.
        file: PathBuf,
        /// Draw it for Graphviz instead of as text.
        #[arg(long)]
        dot: bool,
    },
}

/// Reads a label.
fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a label is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

/// The saga that a command is about.
#[derive(Debug, clap::Args)]
pub struct OneSaga {
    /// The saga: `address:number`, the number alone, or `key=` and its key.
    saga: String,
}

pub(super) use remote::run;

/// Draws the saga of a file as text.
fn draw(file: &Path, output: &mut dyn Write) -> Result<(), CliFailure> {
    Ok(output.write_all(text::drawn(&read(file)?).as_bytes())?)
}

/// Draws the saga of a file for Graphviz.
fn draw_dot(file: &Path, output: &mut dyn Write) -> Result<(), CliFailure> {
    Ok(output.write_all(dot::drawn(&read(file)?).as_bytes())?)
}

/// Reads the saga of a file, and checks that a coordinator with the default limits would start it.
fn read(file: &Path) -> Result<SagaDefinition, CliFailure> {
    let json = read_text(file)?;
    let wrong = |exit, code: &str, why: &dyn fmt::Display| failure(file, exit, code, why);
    let wire = saga_json::definition(&json)
        .map_err(|error| wrong(Exit::Usage, saga_json::CODE, &error))?;
    let saga = Decoder::default()
        .definition(wire)
        .map_err(|bad| wrong(Exit::Refused, bad.code(), &bad))?;
    saga.check(&Limits::default())
        .map_err(|fault| wrong(Exit::Refused, "HF-TC-SAGA-INVALID", &fault))?;
    Ok(saga)
}

/// Reads the JSON of a file as a coordinator is sent it. That the saga can be carried out is for
/// the coordinator to judge, whose limits may be others.
fn read_value(file: &Path) -> Result<serde_json::Value, CliFailure> {
    let json = read_text(file)?;
    let wrong = |error: &dyn fmt::Display| failure(file, Exit::Usage, saga_json::CODE, error);
    // Here and not there, for the line and the column.
    saga_json::definition(&json).map_err(|error| wrong(&error))?;
    serde_json::from_str(&json).map_err(|error| wrong(&error))
}

fn read_text(file: &Path) -> Result<String, CliFailure> {
    let unreadable = |error: std::io::Error| failure(file, Exit::Usage, "HF-CLI-SAGA-FILE", &error);
    fs::read_to_string(file).map_err(unreadable)
}

fn failure(file: &Path, exit: Exit, code: &str, why: &dyn fmt::Display) -> CliFailure {
    CliFailure::new(exit, code, format!("{}: {why}", file.display()))
}
