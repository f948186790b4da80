//! The identity of the client of a connection, and its resources: by what it says of itself, and by
//! what its branches show.

use std::sync::Arc;

use handfast_seata_wire::message::{Register, RegisterResources, Registered};

use super::super::SERVER_VERSION;
use super::super::closing::ConnectionEnd;
use super::super::phase_two::ClientCallSink;
use super::super::undo_logs::ListedClient;
use super::{Connection, lock};
use crate::dispatch::CallSink;

impl Connection {
    pub(super) fn register_tm(&mut self, it: &Register, one_way: bool) -> Registered {
        self.update(|client| client.introduce(it, one_way));
        self.register_process();
        Registered::accepted(SERVER_VERSION)
    }

    pub(super) fn register_rm(&mut self, it: &RegisterResources) -> Registered {
        let max = self.frontend.shared.settings.resources_max;
        let registered = self.update(|client| {
            // Before the resources: names of actions begin with the application.
            client.introduce(&it.client, false);
            client.add_resources(it, max)
        });
        let Some(resources) = registered else {
            let reason = format!("HF-SEATA-TOO-LARGE: more than {max} resources");
            return Registered::refused(SERVER_VERSION, &reason);
        };
        self.register_process();
        if let Some((registration, _)) = &self.registration {
            registration.register(resources);
        }
        Registered::accepted(SERVER_VERSION)
    }

    /// Registers the resource of a branch, if that shows that the client has it.
    ///
    /// # Errors
    ///
    /// The client has not registered here, so that its branch is refused. The connection is to end
    /// with that answer, as at Seata Server: a client that connects again registers. seata-go may
    /// have sent the registration of this connection over another one, and does not send it again.
    pub(super) fn learn_resource(&mut self, resource: &str) -> Result<(), ConnectionEnd> {
        let client = self.client();
        if !client.is_registered {
            return Err(ConnectionEnd::Unregistered);
        }
        if let Some((registration, _)) = &self.registration
            && client.shows(resource)
        {
            let max = self.frontend.shared.settings.resources_max;
            // One too many is not called, as if it had not been shown.
            let resources = self.update(|client| client.add_resource(resource, max));
            registration.register(resources.unwrap_or_default());
        }
        Ok(())
    }

    /// Registers the process at its first registration. From then on operators see the client, and
    /// calls reach it.
    fn register_process(&mut self) {
        if self.registration.is_none() {
            let process = lock(&self.client).process();
            let sink: Arc<dyn CallSink> = Arc::new(ClientCallSink {
                frontend: self.frontend.clone(),
                send_queue: self.send_queue.clone(),
                client: Arc::clone(&self.client),
            });
            let registration = self.frontend.shared.dispatcher.connect(process, sink);
            let listed = ListedClient::add(&self.frontend, &self.client, &self.send_queue);
            self.registration = Some((registration, listed));
            let asker = lock(&self.client).asker();
            self.present = Some(self.frontend.shared.presence.enter(asker.client));
            self.pending.set_asker(asker);
        }
    }
}
