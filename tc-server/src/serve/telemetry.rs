//! Opens the way on which spans leave, if one is configured.

use super::StartError;
use crate::config::Config;
use crate::spans::Spans;
use crate::spans::export::{self, Export};
use crate::store::CoordinatorNode;

pub(super) fn open(
    config: &Config,
    advertised_address: &str,
    node: &CoordinatorNode,
) -> Result<(Spans, Option<Export>), StartError> {
    let instance = if config.store.is_shared() { &node.id } else { advertised_address };
    let Some(settings) = config.telemetry.settings(instance.to_owned()) else {
        return Ok((Spans::default(), None));
    };
    // Fails only if a provider is already installed, which serves as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let opened = export::open(settings);
    let (spans, export) = opened.map_err(|error| StartError::Telemetry(error.to_string()))?;
    Ok((spans, Some(export)))
}
