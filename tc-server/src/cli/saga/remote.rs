//! Runs the commands about sagas, of which all but one send requests to a running coordinator.

use std::io::Write;

use serde::Serialize;

use super::{OneSaga, SagaCommand, draw, draw_dot, read_value};
use crate::admin::model::{
    ActionRequest, OneSagaQuery, SagaDetail, SagaPage, SagaQuery, SagaReply, SignalRequest,
    StartSagaRequest,
};
use crate::cli::remote::{block_on, collect_pages, get, segment, show};
use crate::cli::render::{render_saga, render_saga_action, render_sagas};
use crate::cli::{CliFailure, Client, Exit, Remote};

/// Runs one of the commands.
pub(in crate::cli) fn run(command: SagaCommand, output: &mut dyn Write) -> Result<(), CliFailure> {
    match command {
        SagaCommand::Ls {
            status,
            application,
            name,
            key,
            awaits,
            label,
            older_than,
            page,
            remote,
        } => {
            let mut query = SagaQuery {
                status,
                application,
                name,
                key,
                awaits,
                label,
                older_than,
                ..SagaQuery::default()
            };
            let (items, next) = collect_pages(page, |cursor, limit| {
                (query.cursor, query.limit) = (cursor, Some(limit));
                let page: SagaPage = get(&remote, "/sagas", &query)?;
                Ok((page.items, page.next))
            })?;
            show(&remote, output, &SagaPage { items, next }, render_sagas)
        }
        SagaCommand::Show { one, step, payload_bytes, remote } => {
            let query = OneSagaQuery { step, payload_bytes: Some(payload_bytes) };
            let saga: SagaDetail = get(&remote, &path(&one, &remote)?, &query)?;
            show(&remote, output, &saga, render_saga)
        }
        SagaCommand::Start { file, key, application, labels, reason, remote } => {
            let (saga, labels) = (read_value(&file)?, labels.into_iter().collect());
            let request = StartSagaRequest { key, application, saga, labels, reason };
            act(&remote, "/sagas", &request, output)
        }
        SagaCommand::Signal { one, signal, payload, reason, remote } => {
            let payload = serde_json::from_str(&payload).map_err(|error| no_json(&error))?;
            let request = SignalRequest { signal, payload, reason };
            act(&remote, &format!("{}/signal", path(&one, &remote)?), &request, output)
        }
        SagaCommand::Cancel { one, reason, remote } => {
            let request = ActionRequest { reason };
            act(&remote, &format!("{}/cancel", path(&one, &remote)?), &request, output)
        }
        SagaCommand::Explain { file, dot: false } => draw(&file, output),
        SagaCommand::Explain { file, dot: true } => draw_dot(&file, output),
    }
}

fn act(
    remote: &Remote,
    path: &str,
    body: &impl Serialize,
    output: &mut dyn Write,
) -> Result<(), CliFailure> {
    let client = Client::new(remote)?;
    let reply: SagaReply = block_on(client.post(path, body))??;
    show(remote, output, &reply, render_saga_action)
}

/// Returns the path of a saga, which is looked up if its key is given.
fn path(one: &OneSaga, remote: &Remote) -> Result<String, CliFailure> {
    let Some(key) = one.saga.strip_prefix("key=") else {
        let xid = segment(&one.saga, "a saga is `address:number`, a number, or `key=` and a key")?;
        return Ok(format!("/sagas/{xid}"));
    };
    let query = SagaQuery { key: Some(key.to_owned()), ..SagaQuery::default() };
    let found: SagaPage = get(remote, "/sagas", &query)?;
    let missing = || {
        let message = format!("no saga has the key `{key}`");
        CliFailure::new(Exit::NotFound, "HF-CLI-NO-SAGA", message)
            .advise("list sagas with `handfast saga ls`: one that ended long ago is forgotten")
    };
    let saga = found.items.first().ok_or_else(missing)?;
    Ok(format!("/sagas/{}", saga.xid))
}

fn no_json(error: &serde_json::Error) -> CliFailure {
    let message = format!("--payload is no JSON: {error}");
    CliFailure::new(Exit::Usage, "HF-CLI-ARGUMENT", message)
        .advise("a text has quotation marks: --payload '\"Ada\"'")
}
