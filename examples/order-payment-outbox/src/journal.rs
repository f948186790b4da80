//! The events that each service has consumed, in order: compared with the emitted ones, they show
//! that every event took effect once and none before an earlier one of its key.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use handfast::outbox::Event;
use sqlx::Transaction;

use handfast_example_shop::database::{Databases, Pool, Sql};
use handfast_example_shop::dialect::Dialect;

use crate::fact::Topic;

/// A row is written by the local transaction of the effect, and so is there if and only if the
/// effect is.
pub(crate) const TABLE: &str = "CREATE TABLE received (\
     topic VARCHAR(16) NOT NULL, \
     place BIGINT NOT NULL, \
     event_key VARCHAR(255) NOT NULL, \
     event_id VARCHAR(36) NOT NULL, \
     PRIMARY KEY (topic, place))";

const NOTE: Sql = Sql {
    numbered: "INSERT INTO received (topic, place, event_key, event_id) VALUES ($1, $2, $3, $4)",
    plain: "INSERT INTO received (topic, place, event_key, event_id) VALUES (?, ?, ?, ?)",
};

/// The events of a topic, as they were emitted and as they were taken.
struct Route {
    emitted: &'static str,
    received: &'static str,
}

macro_rules! route {
    ($topic:literal) => {
        Route {
            emitted: concat!(
                "SELECT aggregate_key, event_id FROM event_outbox WHERE topic = '",
                $topic,
                "' ORDER BY seq"
            ),
            received: concat!(
                "SELECT event_key, event_id FROM received WHERE topic = '",
                $topic,
                "' ORDER BY place"
            ),
        }
    };
}

macro_rules! last_place {
    ($topic:literal) => {
        concat!("SELECT COALESCE(MAX(place), 0) FROM received WHERE topic = '", $topic, "'")
    };
}

const ORDERS: Route = route!("orders");
const STOCK: Route = route!("stock");
const PAYMENTS: Route = route!("payments");

/// Event ids by key, each key's in its order.
type Sequences = BTreeMap<String, Vec<String>>;

/// Records that an event is consumed. `place` grows with each event that a consumer takes.
pub(crate) async fn note<DB: Dialect>(
    local: &mut Transaction<'_, DB>,
    place: i64,
    event: &Event,
) -> Result<(), sqlx::Error> {
    let id = event.id().to_string();
    let arguments = [event.topic().into(), place.into(), event.key().into(), id.as_str().into()];
    DB::execute(local, NOTE, &arguments).await.map(drop)
}

/// Returns the place of the last event of a topic that a service has consumed.
pub(crate) async fn last_place(pool: &Pool, topic: Topic) -> Result<i64> {
    let sql = match topic {
        Topic::Orders => last_place!("orders"),
        Topic::Stock => last_place!("stock"),
        Topic::Payments => last_place!("payments"),
    };
    pool.count(sql).await
}

/// Returns the number of keys for which a service has not consumed exactly the emitted events, in
/// order.
pub(crate) async fn keys_out_of_order(databases: &Databases) -> Result<i64> {
    let Databases { order, stock, account, .. } = databases;
    let mut count = 0;
    for (route, from, to) in [
        (ORDERS, order, stock),
        (STOCK, stock, account),
        (STOCK, stock, order),
        (PAYMENTS, account, stock),
        (PAYMENTS, account, order),
    ] {
        let emitted = sequences(from, route.emitted).await?;
        count += differences(&emitted, &sequences(to, route.received).await?);
    }
    Ok(i64::try_from(count)?)
}

async fn sequences(pool: &Pool, sql: &'static str) -> Result<Sequences> {
    let mut sequences = Sequences::new();
    for (key, event) in pool.texts_by_name(sql).await? {
        sequences.entry(key).or_default().push(event);
    }
    Ok(sequences)
}

fn differences(emitted: &Sequences, received: &Sequences) -> usize {
    let keys: BTreeSet<&String> = emitted.keys().chain(received.keys()).collect();
    keys.into_iter().filter(|key| emitted.get(*key) != received.get(*key)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(received: &[&str], expected: usize) {
        let sequence = |events: &[&str]| events.iter().map(|&event| event.to_owned()).collect();
        let emitted = [("A".to_owned(), sequence(&["1", "2"]))].into();
        let received = [("A".to_owned(), sequence(received))].into();
        assert_eq!(differences(&emitted, &received), expected);
    }

    #[test]
    fn lost_doubled_and_reordered_events_are_found() {
        check(&["1", "2"], 0);
        check(&["1"], 1);
        check(&["1", "2", "2"], 1);
        check(&["2", "1"], 1);
    }

    #[test]
    fn an_event_never_emitted_is_found() {
        let received: Sequences = [("B".to_owned(), vec!["1".to_owned()])].into();
        assert_eq!(differences(&Sequences::new(), &received), 1);
    }
}
