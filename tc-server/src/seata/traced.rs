//! Requests of clients that stand in a trace.
//!
//! Seata's messages have no field for it, and its clients send none by themselves. The frame around
//! a message has a head map, which is there for what an application or an agent in its process
//! adds; a `traceparent` in it is read as the header of that name. Nothing is sent back: a call of
//! phase two carries no head map, since seata-go misreads some.

use handfast_seata_wire::frame::head_map;
use handfast_seata_wire::message::{BranchRegister, GlobalEnd, Message};
use opentelemetry::KeyValue;

use super::client::Client;
use crate::spans::{OwnSpan, RequestSpan, Spans, text};

/// The key in a head map, as the header of W3C Trace Context is called.
const KEY: &str = "traceparent";

/// Returns the `traceparent` of a head map; empty if it has none, or cannot be read: it is for
/// display.
pub(super) fn traceparent_of(head_map: &[u8]) -> String {
    // Nearly every one is empty.
    if head_map.is_empty() {
        return String::new();
    }
    let entries = head_map::read(head_map).unwrap_or_default().into_iter();
    let mut named = entries.filter(|(key, _)| key.as_deref() == Some(KEY));
    named.next().and_then(|(_, value)| value).unwrap_or_default()
}

/// Begins the span of a request, if it stands in a trace and is one that has a span.
#[expect(clippy::wildcard_enum_match_arm, reason = "`plan_of` matches alike")]
pub(super) fn begin(
    spans: &Spans,
    traceparent: &str,
    request: &Message,
    client: &Client,
) -> Option<RequestSpan> {
    if traceparent.is_empty() {
        return None;
    }
    match request {
        Message::GlobalBegin(it) => {
            RequestSpan::begin(spans, traceparent, "begin", OwnSpan::Random, || {
                let application = &*client.application;
                vec![text("name", it.name.as_str()), text("application", application)]
            })
        }
        Message::BranchRegister(it) => {
            let attributes = || of_branch(it);
            RequestSpan::begin(spans, traceparent, "register", OwnSpan::Random, attributes)
        }
        Message::GlobalCommit(it) => of_end(spans, traceparent, "commit", it),
        Message::GlobalRollback(it) => of_end(spans, traceparent, "roll back", it),
        _ => None,
    }
}

fn of_branch(it: &BranchRegister) -> Vec<KeyValue> {
    vec![text("xid", it.xid.as_str()), text("resource", it.resource_id.as_str())]
}

fn of_end(
    spans: &Spans,
    traceparent: &str,
    name: &'static str,
    it: &GlobalEnd,
) -> Option<RequestSpan> {
    let attributes = || vec![text("xid", it.xid.as_str())];
    RequestSpan::begin(spans, traceparent, name, OwnSpan::Of(&it.xid), attributes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_map_may_name_the_place_of_a_span() {
        let some = |text: &str| Some(text.to_owned());
        let map = |entries: &[_]| head_map::write(entries).unwrap();
        let place = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let named = map(&[(some("sw8"), some("x")), (some(KEY), some(place))]);
        assert_eq!(traceparent_of(&named), place);
        let null = map(&[(some(KEY), None)]);
        let others = map(&[(some("sw8"), some(place)), (None, some(place))]);
        for none in [&[], &*null, &*others, b"\x00\x01", &named[..20]] {
            assert_eq!(traceparent_of(none), "");
        }
    }
}
