//! The one connection of this process to the coordinator.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use handfast_proto::v1::Resource;
use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;

use crate::coordinator::PhaseTwo;
use crate::error::Error;

/// The connection.
pub(crate) struct Link {}

impl Link {
    pub(crate) async fn ask(
        &self,
        _name: &'static str,
        _ask: Ask,
        _wait: Duration,
    ) -> Result<Answer, Error> {
        Err(Error::Closed)
    }

    pub(crate) fn register_resource(&self, _resource: Resource, _phase_two: Arc<dyn PhaseTwo>) {}
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").finish_non_exhaustive()
    }
}
