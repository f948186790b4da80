//! The announcement of resources.

use super::*;

#[test]
fn resources_are_announced_once_per_connection() {
    let mut driven = Driven::new(&["a"]);
    driven.protocol.register_resource(resource("early"));
    driven.protocol.register_resource(resource("early"));
    assert!(driven.greet().resources.is_empty(), "no coordinator has accepted any");
    driven.protocol.register_resource(resource("later"));
    let (id, announced) = driven.announcement();
    assert_eq!(announced, [resource("early"), resource("later")]);
    assert!(driven.frame().is_empty());
    driven.answer(id, Answer::RegisterResources(v1::RegisterResourcesReply::default()));
    driven.protocol.register_resource(resource("unanswered"));
    driven.protocol.register_resource(resource("early"));
    assert_eq!(driven.announcement().1, [resource("unanswered")]);
    driven.lose();
    driven.sleep();
    assert_eq!(driven.greet().resources, [resource("early"), resource("later")]);
    assert_eq!(driven.announcement().1, [resource("unanswered")]);
}

/// With the refused resource in it, `Hello` would be refused at every attempt to connect.
#[test]
fn a_refused_resource_is_reported_and_dropped() {
    let mut driven = Driven::ready();
    for id in ["one", "bad", "two"] {
        driven.protocol.register_resource(resource(id));
    }
    let (id, announced) = driven.announcement();
    assert_eq!(announced.len(), 3);
    driven.answer(id, Answer::Rejected(v1::Rejection::default()));
    for expected in ["one", "bad", "two"] {
        let (id, announced) = driven.announcement();
        assert_eq!(announced, [resource(expected)]);
        let answer = if expected == "bad" {
            Answer::Rejected(v1::Rejection::default())
        } else {
            Answer::RegisterResources(v1::RegisterResourcesReply::default())
        };
        driven.answer(id, answer);
    }
    let refused = |event: &Event| {
        let Event::ResourceRefused { resource, .. } = event else { return None };
        Some(resource.id.clone())
    };
    assert_eq!(Vec::from_iter(driven.other.iter().filter_map(refused)), ["bad"]);
    driven.lose();
    driven.sleep();
    assert_eq!(driven.greet().resources, [resource("one"), resource("two")]);
    assert!(driven.frame().is_empty());
}
