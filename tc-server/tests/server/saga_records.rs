//! Saga records as bytes.

use std::sync::Arc;

use handfast_core::{
    ChildDefinition, ChildRef, Event, EventKind, Label, Labels, Record, RequestTrace, Retry,
    SagaDefinition, SagaPart, SagaRecord, SagaState, StepDefinition, StepKind, StepRecord, StepRef,
    StepState, Timestamp, TurnCause, Xid,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use crate::records::{event, labels, request_trace};

fn text() -> impl Strategy<Value = Arc<str>> {
    any::<String>().prop_map(Arc::from)
}

fn bytes() -> impl Strategy<Value = Arc<[u8]>> {
    vec(any::<u8>(), 0..20).prop_map(Arc::from)
}

fn at() -> impl Strategy<Value = Timestamp> {
    any::<u64>().prop_map(Timestamp)
}

fn state() -> impl Strategy<Value = SagaState> {
    let step = || any::<u32>().prop_map(StepRef);
    let cause = prop_oneof![
        step().prop_map(TurnCause::Refused),
        step().prop_map(TurnCause::Exhausted),
        step().prop_map(TurnCause::StepTimeout),
        any::<u32>().prop_map(|child| TurnCause::ChildTimeout(ChildRef(child))),
        Just(TurnCause::Timeout),
        Just(TurnCause::Cancelled),
        Just(TurnCause::Operator),
    ];
    (0..4, cause, at()).prop_map(|(which, cause, at)| match which {
        0 => SagaState::Running,
        1 => SagaState::Compensating(cause),
        2 => SagaState::Completed(at),
        _ => SagaState::Compensated(cause, at),
    })
}

fn part() -> impl Strategy<Value = SagaPart> {
    prop_oneof![
        any::<u32>().prop_map(|step| SagaPart::Step(StepRef(step))),
        any::<u32>().prop_map(|child| SagaPart::Child(ChildRef(child))),
    ]
}

fn parent() -> impl Strategy<Value = Option<ChildRef>> {
    option::of(any::<u32>().prop_map(ChildRef))
}

fn child() -> impl Strategy<Value = ChildDefinition> {
    let times = option::of(any::<u64>());
    (text(), text(), parent(), any::<u32>(), times, option::of(part())).prop_map(
        |(name, saga, parent, group, timeout_ms, output)| ChildDefinition {
            name,
            saga,
            parent,
            group,
            timeout_ms,
            output,
        },
    )
}

fn step() -> impl Strategy<Value = (StepDefinition, StepRecord)> {
    let kind = prop_oneof![
        Just(StepKind::Compensable),
        Just(StepKind::Harmless),
        Just(StepKind::Pivot),
        Just(StepKind::Retriable),
        Just(StepKind::Signal),
    ];
    let state = prop_oneof![
        Just(StepState::Waiting),
        Just(StepState::Running),
        Just(StepState::RunningStuck),
        Just(StepState::Done),
        Just(StepState::Failed),
        Just(StepState::Compensating),
        Just(StepState::CompensatingStuck),
        Just(StepState::Compensated),
    ];
    let takes = (parent(), vec(part(), 0..3));
    let retry = (any::<u64>(), any::<u32>(), any::<u64>(), option::of(any::<u32>()));
    let definition =
        (text(), any::<u32>(), kind, text(), bytes(), takes, retry, option::of(any::<u64>()));
    let record = (
        state,
        option::of(at()),
        option::of(at()),
        any::<u32>(),
        option::of((at(), text())),
        option::of(bytes()),
    );
    (definition, record).prop_map(|(definition, record)| {
        let (name, group, kind, resource, input, takes, retry, timeout_ms) = definition;
        let (parent, takes) = takes;
        let (base_ms, factor, cap_ms, attempts) = retry;
        let retry = Retry { base_ms, factor, cap_ms, attempts };
        let action = name.clone();
        let definition = StepDefinition {
            name,
            parent,
            group,
            kind,
            resource,
            action,
            input,
            takes,
            retry,
            timeout_ms,
        };
        let (state, started_at, ended_at, attempts, last_failure, output) = record;
        let record = StepRecord { state, started_at, ended_at, attempts, last_failure, output };
        (definition, record)
    })
}

pub(crate) fn saga() -> impl Strategy<Value = Record> {
    let names = (any::<u64>(), text(), text(), text(), text(), option::of(any::<u64>()));
    let parts = (vec(step(), 0..4), vec(child(), 0..3));
    let state = (state(), option::of(text()));
    let told = (vec(event(), 0..3), labels(), option::of(request_trace()));
    let rest = (at(), option::of(at()), state, any::<bool>(), parts, told);
    (names, rest).prop_map(|(names, rest)| {
        let (xid, address, application, key, name, timeout_ms) = names;
        let (begun_at, deadline, (state, cause_error), paused, (steps, children), told) = rest;
        let (events, labels, trace) = told;
        let (definitions, steps) = steps.into_iter().unzip();
        let definition = SagaDefinition { name, timeout_ms, steps: definitions, children };
        Record::Saga(SagaRecord {
            xid: Xid(xid),
            address,
            application,
            key,
            definition: Arc::new(definition),
            begun_at,
            deadline,
            state,
            cause_error,
            paused,
            steps,
            events: events.into(),
            labels,
            trace: trace.map(Box::new),
        })
    })
}

/// A saga with every kind of field set. It must never change.
pub(crate) fn example() -> Record {
    let reserve = StepDefinition {
        name: "reserve".into(),
        parent: None,
        group: 0,
        kind: StepKind::Compensable,
        resource: "stock".into(),
        action: "reserve-stock".into(),
        input: b"{\"product\":7}".as_slice().into(),
        takes: Vec::new(),
        retry: Retry { attempts: Some(3), ..Retry::DEFAULT },
        timeout_ms: Some(5_000),
    };
    let pay = StepDefinition {
        name: "pay".into(),
        group: 1,
        kind: StepKind::Pivot,
        resource: "bank".into(),
        action: "pay".into(),
        takes: vec![SagaPart::Step(StepRef(0))],
        retry: Retry::DEFAULT,
        timeout_ms: None,
        ..reserve.clone()
    };
    let reserved = StepRecord {
        state: StepState::Compensating,
        started_at: Some(Timestamp(1_000)),
        ended_at: Some(Timestamp(1_100)),
        attempts: 2,
        last_failure: Some((Timestamp(1_300), "no database".into())),
        output: Some(b"r7".as_slice().into()),
    };
    let refused = StepRecord {
        state: StepState::Failed,
        attempts: 1,
        last_failure: Some((Timestamp(1_200), "no money".into())),
        output: None,
        ..reserved
    };
    let definition = SagaDefinition {
        name: "place-order".into(),
        timeout_ms: Some(60_000),
        steps: vec![reserve, pay],
        children: Vec::new(),
    };
    Record::Saga(SagaRecord {
        xid: Xid(1 << 40 | 2),
        address: "127.0.0.1:7091".into(),
        application: "shop".into(),
        key: "order-42".into(),
        definition: Arc::new(definition),
        begun_at: Timestamp(1_000),
        deadline: Some(Timestamp(61_000)),
        state: SagaState::Compensating(TurnCause::Refused(StepRef(1))),
        cause_error: None,
        paused: true,
        steps: vec![reserved, refused],
        // The words that the kept file was written with.
        events: [Event { at: Timestamp(1_200), what: "taken back".into(), kind: EventKind::Note }]
            .into(),
        labels: Labels::NONE,
        trace: None,
    })
}

/// The same saga with labels.
pub(crate) fn example_with_labels() -> Record {
    let Record::Saga(saga) = example() else { unreachable!("the example is a saga") };
    let labels = [Label::new("country", "de"), Label::new("order", "42")];
    Record::Saga(SagaRecord { labels: labels.into_iter().collect(), ..saga })
}

/// The same saga, started within a trace.
pub(crate) fn example_with_trace(started: RequestTrace) -> Record {
    let Record::Saga(saga) = example() else { unreachable!("the example is a saga") };
    Record::Saga(SagaRecord { trace: Some(Box::new(started)), ..saga })
}

/// The same saga with its payment in a child, whose output another child takes.
pub(crate) fn example_with_children() -> Record {
    let Record::Saga(mut saga) = example() else { unreachable!("the example is a saga") };
    let mut definition = (*saga.definition).clone();
    let billing = ChildDefinition {
        name: "billing".into(),
        saga: "invoice".into(),
        parent: None,
        group: 1,
        timeout_ms: Some(9_000),
        output: Some(SagaPart::Child(ChildRef(1))),
    };
    let bank = ChildDefinition {
        name: "bank".into(),
        saga: "transfer".into(),
        parent: Some(ChildRef(0)),
        group: 0,
        timeout_ms: None,
        output: Some(SagaPart::Step(StepRef(1))),
    };
    let pay = &mut definition.steps[1];
    (pay.parent, pay.group) = (Some(ChildRef(1)), 0);
    let mut thank = pay.clone();
    thank.name = "thank".into();
    (thank.parent, thank.group, thank.kind) = (None, 2, StepKind::Retriable);
    thank.takes = vec![SagaPart::Child(ChildRef(0)), SagaPart::Step(StepRef(0))];
    definition.steps.push(thank);
    definition.children = vec![billing, bank];
    saga.definition = Arc::new(definition);
    saga.steps.push(StepRecord::default());
    saga.state = SagaState::Compensating(TurnCause::ChildTimeout(ChildRef(0)));
    Record::Saga(saga)
}
