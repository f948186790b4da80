//! The stage without a script: a person is its audience, with browser and command line.

use std::io::stdin;

use anyhow::Result;
use tokio::task::block_in_place;

use crate::say;
use crate::stage::Stage;

/// Says where the console is, and does what lines of standard input ask for, until it ends.
pub(crate) async fn play(stage: &mut Stage) -> Result<()> {
    say(&format!("export HANDFAST_SERVER={}", stage.console()));
    say(&format!("export HANDFAST_TOKEN={}", stage.tokens().operator));
    let mut lines = stdin().lines();
    // The service goes on meanwhile, on the other threads.
    while let Some(deed) = block_in_place(|| lines.next()).transpose()? {
        match stage.act(deed.trim()).await {
            Ok(answer) => say(&answer.to_string()),
            Err(error) => say(&format!("failed: {error:#}")),
        }
    }
    stage.act("close").await?;
    Ok(())
}
