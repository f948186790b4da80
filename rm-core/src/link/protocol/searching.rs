//! While there is no connection: the attempts, from dialling to the first greeting.

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, ClientMessage};

use super::super::event::{ConnectionFailure, ConnectionId, Event, Moment, RequestId};
use super::super::search::Remaining;
use super::leaving::going_away;
use super::{Protocol, State};

impl Protocol {
    /// Takes note of how many addresses the name of an attempt's endpoint has.
    pub fn found(&mut self, connection: ConnectionId, addresses: usize) {
        self.search.found(connection, addresses);
    }

    /// Takes note that the transport of an attempt is up. Returns whether the attempt is still
    /// wanted.
    pub fn connected(&mut self, connection: ConnectionId) -> bool {
        self.search.connected(connection)
    }

    pub(super) fn go_on_searching(&mut self, now: Moment) {
        while let Some((connection, endpoint)) = self.search.overdue(now) {
            let (endpoint, waited) =
                (&self.settings.endpoints[endpoint], self.settings.connect_timeout);
            let reason = format!("{endpoint}: not greeted within {waited:?}");
            self.give_up(now, connection, ConnectionFailure::Passing(reason.into()));
        }
        if let Some((connection, target)) = self.search.next_dial(now) {
            self.events.push_back(Event::Dial { connection, target });
        }
    }

    fn give_up(&mut self, now: Moment, connection: ConnectionId, failure: ConnectionFailure) {
        self.events.push_back(Event::HangUp { connection });
        self.attempt_failed(now, connection, failure);
    }

    /// Takes note of a failed attempt. A refusal of this client by a coordinator outweighs the
    /// silence of another target, until both are reported.
    pub(super) fn attempt_failed(
        &mut self,
        now: Moment,
        connection: ConnectionId,
        failure: ConnectionFailure,
    ) {
        let Some(remaining) = self.search.fail(now, connection) else { return };
        let outweighs = matches!(self.last_failure, ConnectionFailure::Unauthenticated(_));
        if !outweighs
            || self.is_reported
            || matches!(failure, ConnectionFailure::Unauthenticated(_))
        {
            self.last_failure = failure;
        }
        self.is_reported = remaining != Remaining::Attempts;
        let failure = self.last_failure.clone();
        self.events.push_back(match remaining {
            Remaining::Attempts => Event::AttemptFailed { failure },
            Remaining::Nothing { retry_at } => Event::Disconnected { failure, retry_at },
        });
    }

    /// Makes the hello of an attempt.
    pub(super) fn greet(&mut self, connection: ConnectionId) -> ClientMessage {
        let id = self.fresh_id();
        self.search.greets_with(connection, id);
        let hello = v1::Hello {
            client_id: self.settings.client_id.clone(),
            application: self.settings.application.clone(),
            agent: concat!("handfast-rust/", env!("CARGO_PKG_VERSION")).to_owned(),
            resources: self.resources.accepted(),
        };
        ClientMessage { id: id.0, body: Some(Ask::Hello(hello)) }
    }

    /// Takes a message that comes on an attempt before it is the connection.
    pub(super) fn receive_greeting(
        &mut self,
        now: Moment,
        connection: ConnectionId,
        id: RequestId,
        answer: Option<Answer>,
    ) {
        if let Some(Answer::Hello(hello)) = answer {
            self.greeted(now, connection, hello);
        } else if let Some(Answer::PhaseTwo(call)) = answer {
            self.events.push_back(Event::PhaseTwo(call));
        } else if let Some(Answer::GoAway(notice)) = answer {
            self.search.sent_on();
            self.give_up(now, connection, going_away(&notice));
            self.go_to_the_leader(now, &notice);
        } else if let Some(Answer::Rejected(refusal)) = answer
            && self.search.has_greeted_with(connection, id)
        {
            let reason = format!("{} ({})", refusal.message, refusal.code);
            self.give_up(now, connection, ConnectionFailure::Passing(reason.into()));
        }
    }

    fn greeted(&mut self, now: Moment, connection: ConnectionId, hello: v1::HelloReply) {
        // The greeting of an attempt that was given up must not count as an epoch.
        if self.search.is_under_way(connection) && !self.epochs.greet(now, hello.epoch) {
            let reason = format!("epoch {} is over: another coordinator leads", hello.epoch);
            return self.give_up(now, connection, ConnectionFailure::Passing(reason.into()));
        }
        let Some((endpoint, others)) = self.search.greeted(connection) else { return };
        (self.state, self.connection, self.endpoint) = (State::Ready, connection, endpoint);
        if !self.requests.is_empty() {
            self.heartbeat.start(now);
        }
        self.events.push_back(Event::Greeted { connection, hello });
        let hang_up = |connection| Event::HangUp { connection };
        self.events.extend(others.into_iter().map(hang_up));
    }
}
