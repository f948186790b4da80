//! Histories that are good, and one bad history for each anomaly.

use super::*;

const A: List = (0, 1);
const B: List = (1, 1);

fn operation(element: Element, outcome: Outcome, appends: &[List]) -> Operation {
    let times = element * 10;
    Operation {
        element,
        began: times,
        ended: (outcome != Outcome::Unknown).then_some(times + 5),
        outcome,
        appends: appends.iter().copied().collect(),
        reads: Vec::new(),
    }
}

fn committed(element: Element, appends: &[List]) -> Operation {
    operation(element, Outcome::Committed, appends)
}

impl Operation {
    fn reading(mut self, reading: Reading, list: List, elements: &[Element]) -> Self {
        self.reads.push(Read { list, reading, elements: elements.to_vec() });
        self
    }

    fn locked(self, list: List, elements: &[Element]) -> Self {
        self.reading(Reading::Locked, list, elements)
    }

    fn during(mut self, began: u64, ended: u64) -> Self {
        (self.began, self.ended) = (began, Some(ended));
        self
    }
}

fn found(operations: &[Operation], a: &[Element], b: &[Element]) -> Vec<Anomaly> {
    judge(operations, &BTreeMap::from([(A, a.to_vec()), (B, b.to_vec())]))
}

#[test]
fn a_good_history_has_no_anomaly() {
    let operations = [
        committed(1, &[A, B]),
        operation(2, Outcome::RolledBack, &[A, B]),
        operation(3, Outcome::Unknown, &[A, B]),
        operation(4, Outcome::Unknown, &[A, B]),
        committed(5, &[A]).locked(A, &[1, 3]).locked(B, &[1, 3]),
        committed(6, &[]).reading(Reading::Committed, A, &[1, 3, 5]),
    ];
    assert_eq!(found(&operations, &[1, 3, 5], &[1, 3]), []);
}

#[test]
fn an_acknowledged_append_that_is_gone_is_lost() {
    let lost = Anomaly::Lost { element: 1, list: B };
    assert_eq!(found(&[committed(1, &[A, B])], &[1], &[]), [lost]);
}

#[test]
fn an_append_that_was_rolled_back_and_is_there_is_undead() {
    let operations = [operation(1, Outcome::RolledBack, &[A, B])];
    assert_eq!(found(&operations, &[1], &[]), [Anomaly::Undead { element: 1, list: A }]);
}

#[test]
fn half_of_an_unknown_operation_is_torn() {
    let operations = [operation(1, Outcome::Unknown, &[A, B])];
    assert_eq!(found(&operations, &[1], &[]), [Anomaly::Torn { element: 1, missing: B }]);
}

#[test]
fn an_effect_that_happened_twice_is_doubled() {
    let doubled = Anomaly::Doubled { element: 1, list: A };
    // Twice in a row is a circle through itself, which is no order of two operations.
    assert_eq!(found(&[committed(1, &[A])], &[1, 1], &[]), [doubled]);
}

#[test]
fn an_element_never_appended_there_is_foreign() {
    let foreign = |element, list| Anomaly::Foreign { element, list };
    assert_eq!(found(&[committed(1, &[A])], &[1, 7], &[1]), [foreign(1, B), foreign(7, A)]);
}

#[test]
fn a_read_of_a_rolled_back_value_is_dirty() {
    let operations = [
        operation(1, Outcome::RolledBack, &[A]),
        committed(2, &[]).reading(Reading::Committed, A, &[1]),
    ];
    assert_eq!(
        found(&operations, &[], &[]),
        [
            Anomaly::DirtyRead { reader: 2, element: 1, list: A },
            Anomaly::ReadOutOfOrder { reader: 2, list: A },
        ]
    );
}

#[test]
fn a_read_of_an_aborted_operation_proves_nothing() {
    let operations = [
        operation(1, Outcome::RolledBack, &[A]),
        operation(2, Outcome::RolledBack, &[]).locked(A, &[1]),
    ];
    assert_eq!(found(&operations, &[], &[]), []);
}

#[test]
fn half_of_an_operation_seen_under_locks_is_a_torn_read() {
    let operations =
        [committed(1, &[A, B]).during(10, 100), committed(2, &[]).locked(A, &[1]).locked(B, &[])];
    assert_eq!(
        found(&operations, &[1], &[1]),
        [
            Anomaly::TornRead { reader: 2, element: 1, missing: B },
            Anomaly::Cycle { elements: vec![1, 2] },
        ]
    );
}

#[test]
fn half_of_an_operation_seen_without_locks_may_be() {
    let operations = [
        committed(1, &[A, B]).during(10, 100),
        committed(2, &[]).reading(Reading::Committed, B, &[]).reading(Reading::Committed, A, &[1]),
    ];
    assert_eq!(found(&operations, &[1], &[1]), []);
}

#[test]
fn a_read_that_misses_an_acknowledged_append_is_stale() {
    let operations = [
        committed(1, &[A]).during(10, 20),
        committed(2, &[]).during(21, 30).reading(Reading::Committed, A, &[]),
    ];
    assert_eq!(
        found(&operations, &[1], &[]),
        [Anomaly::StaleRead { reader: 2, element: 1, list: A }]
    );
}

#[test]
fn a_read_in_another_order_than_the_last_one_is_told() {
    let operations = [
        committed(1, &[A]).during(10, 90),
        committed(2, &[A]).during(20, 90),
        committed(3, &[]).during(30, 90).reading(Reading::Committed, A, &[2]),
    ];
    assert_eq!(found(&operations, &[1, 2], &[]), [Anomaly::ReadOutOfOrder { reader: 3, list: A }]);
}

#[test]
fn an_update_made_on_an_old_read_is_a_cycle() {
    // Both read the empty list and append: the second has overlooked the first.
    let operations = [
        committed(1, &[A]).during(10, 90).locked(A, &[]),
        committed(2, &[A]).during(10, 90).locked(A, &[]),
    ];
    assert_eq!(found(&operations, &[1, 2], &[]), [Anomaly::Cycle { elements: vec![1, 2] }]);
}

#[test]
fn lists_that_grew_in_opposite_orders_are_a_cycle() {
    let operations = [committed(1, &[A, B]).during(10, 90), committed(2, &[A, B]).during(10, 90)];
    assert_eq!(found(&operations, &[1, 2], &[2, 1]), [Anomaly::Cycle { elements: vec![1, 2] }]);
}
