//! The end of a connection that the coordinator asks for, and where to go then.

use handfast_proto::v1;

use super::super::event::{ConnectionFailure, Moment};
use super::Protocol;

impl Protocol {
    pub(super) fn leave(&mut self, now: Moment, notice: &v1::GoAway) {
        // This comes first: it begins the pause that the notice of a leader ends.
        self.hang_up(now, going_away(notice));
        self.go_to_the_leader(now, notice);
    }

    /// Tries the leader that a notice names next, if it is one of the endpoints: the token is sent
    /// to no other server.
    pub(super) fn go_to_the_leader(&mut self, now: Moment, notice: &v1::GoAway) {
        let Some(leader) = self.endpoint_of(&notice.leader) else { return };
        self.search.prefer(leader);
        if self.epochs.redirect(notice.epoch) {
            self.search.dial_at_once(now);
        }
    }

    /// Returns the endpoint at an address, which is given with or without a scheme.
    fn endpoint_of(&self, leader: &str) -> Option<usize> {
        let leader = address(leader);
        let is_leader = |endpoint: &String| address(endpoint) == leader;
        self.settings.endpoints.iter().position(is_leader)
    }
}

/// Returns an endpoint without scheme and path.
fn address(endpoint: &str) -> &str {
    let (_, address) = endpoint.split_once("://").unwrap_or(("", endpoint));
    address.trim_end_matches('/')
}

pub(super) fn going_away(notice: &v1::GoAway) -> ConnectionFailure {
    ConnectionFailure::Passing(format!("the coordinator goes away: {}", notice.reason).into())
}
