//! The script that drives the browser, and the deeds that it asks for.
//!
//! A line of the script's output that begins with `@` asks for a deed, which is answered with one
//! line of JSON. Other lines are its results.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::stage::Stage;
use crate::{Options, say};

/// Names the browser's program where it is not Debian's.
const BROWSER_VARIABLE: &str = "HANDFAST_TEST_CHROMIUM";
const BROWSER: &str = "chromium";

/// Plays all scenes, and returns whether every one went well.
pub(crate) async fn play(stage: &mut Stage, options: &Options) -> Result<bool> {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("browser");
    let mut command = Command::new("node");
    command.arg(scripts.join("play.js")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let browser = std::env::var(BROWSER_VARIABLE).unwrap_or_else(|_| BROWSER.to_owned());
    command.env("BROWSER", browser).env("CONSOLE", stage.console());
    command.env("VIEWER", &stage.tokens().viewer).env("OPERATOR", &stage.tokens().operator);
    if let Some(scene) = &options.scene {
        command.env("SCENE", scene);
    }
    if let Some(pictures) = &options.pictures {
        command.env("PICTURES", std::path::absolute(pictures)?);
    }
    let mut script = command.kill_on_drop(true).spawn().context("starting node")?;
    let mut answers = script.stdin.take().context("its input is piped")?;
    let output = script.stdout.take().context("its output is piped")?;
    let mut lines = BufReader::new(output).lines();
    while let Some(line) = lines.next_line().await? {
        let Some(deed) = line.strip_prefix('@') else {
            say(&line);
            continue;
        };
        let answer = match stage.act(deed.trim()).await {
            Ok(answer) => json!({ "done": answer }),
            Err(error) => json!({ "failed": format!("{error:#}") }),
        };
        answers.write_all(format!("{answer}\n").as_bytes()).await?;
    }
    Ok(script.wait().await?.success())
}

/// An answer without content.
pub(crate) const DONE: Value = Value::Null;
