//! Begins: with a lent XID, requests about the global may follow at once.

use std::time::Duration;

use handfast_proto::v1::client_message::Body as Ask;
use handfast_proto::v1::server_message::Body as Answer;
use handfast_proto::v1::{self, BeginRequest};

use super::super::begins::{UNKNOWN_XID, Unknown};
use super::super::error::RequestError;
use super::super::event::{Moment, RequestId};
use super::super::stock::LentXid;
use super::{Protocol, State};

/// The refusal of a begin whose lent XID the coordinator does not take.
const NOT_LENT: &str = "HF-TC-XID-NOT-LENT";
/// How long the end of a global that was begun in vain may take.
const END_DEADLINE: Duration = Duration::from_secs(30);

impl Protocol {
    /// Takes a begin, and returns the XID of its global if that is known already: then its caller
    /// need not wait for the answer, and may not cancel the request. It is not repeated beyond the
    /// global's timeout: the coordinator may have ended the global, and forgotten it, by then.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn begin(
        &mut self,
        now: Moment,
        mut request: BeginRequest,
        limit: Duration,
    ) -> Result<(RequestId, Option<LentXid>), RequestError> {
        // Without a connection the begin waits, so that its caller hears of that from the begin.
        let may_be_ahead = self.state == State::Ready && request.key.is_empty();
        let may_be_ahead = may_be_ahead && self.requests.len() < self.settings.requests_max;
        let lent = may_be_ahead.then(|| self.stock.take(request.timeout_ms)).flatten();
        request.wants = self.stock.wants();
        let mut limit = limit;
        if let Some(LentXid { xid, timeout }) = &lent {
            request.lent_xid.clone_from(xid);
            limit = limit.min(*timeout);
        }
        let asks = request.wants > 0;
        let id = self.submit(now, "begin", Ask::Begin(request), now.after(limit))?;
        if asks {
            self.stock.asked_by(id);
        }
        if let Some(LentXid { xid, .. }) = &lent {
            self.begins.note(id, xid);
        }
        Ok((id, lent))
    }

    pub(super) fn begun(&mut self, now: Moment, id: RequestId, reply: v1::BeginReply) {
        self.stock.receive(id, &reply);
        if self.begins.xid_of(id).is_some_and(|xid| xid != reply.xid) {
            return self.begun_under_another_xid(now, id, reply.xid);
        }
        self.complete(id, Ok(Answer::Begin(reply)));
    }

    /// A leader of an earlier version knows nothing of lent XIDs. What follows the begin is about
    /// an XID that is unknown to it, and the global that it has begun is of no use.
    fn begun_under_another_xid(&mut self, now: Moment, id: RequestId, other: String) {
        let message = "this coordinator draws XIDs itself: begin again".to_owned();
        self.refused(id, v1::Rejection { code: NOT_LENT.to_owned(), message, detail: None });
        let (decision, reason) = (v1::Decision::RollBack.into(), "begun in vain".to_owned());
        let end = v1::EndRequest { xid: other, decision, reason, ..v1::EndRequest::default() };
        // Without room for the request the global ends at its timeout.
        let _ = self.submit(now, "end", Ask::End(end), now.after(END_DEADLINE));
    }

    pub(super) fn refused(&mut self, id: RequestId, refusal: v1::Rejection) {
        self.begins.refuse(id, &refusal);
        let is_unknown = refusal.code == UNKNOWN_XID && self.begins.concern_any();
        let answer = match self.ask_of(id).filter(|_| is_unknown) {
            Some(ask) => match self.begins.of_unknown(id, &ask) {
                Unknown::Overtook => return,
                Unknown::Refused(refusal_of_begin) => refusal_of_begin,
                Unknown::Unrelated => refusal,
            },
            None => refusal,
        };
        self.complete(id, Ok(Answer::Rejected(answer)));
    }

    /// Returns an unanswered request, read from its frame.
    fn ask_of(&self, id: RequestId) -> Option<Ask> {
        let messages = self.requests.get(&id)?.frame.decoded().messages;
        messages.into_iter().next()?.body
    }
}
