//! The contract of every store: epochs grow, batches are whole, the records are those of the
//! batches.

use handfast_core::{Change, Coordinator, Epoch, Limits};
use handfast_server::store::{MemoryStore, Store, StoreError};

use crate::store_under_test::{StoreUnderTest, branch, delete, global, named, names, put};

crate::on_every_store!(
    a_later_lead_has_a_later_epoch,
    a_batch_of_an_earlier_epoch_is_refused,
    batches_are_read_back,
    the_newest_record_is_deleted,
    an_empty_batch_changes_nothing,
    records_survive_several_leads,
    many_records_are_read_back,
    records_are_fed_as_they_are_loaded,
    a_batch_of_megabytes_is_read_back,
    random_batches_give_the_records_of_the_model,
);

async fn a_later_lead_has_a_later_epoch<S: StoreUnderTest>() {
    let created = S::create().await;
    let store = created.open().await;
    let (first, records) = store.lead(Epoch(0)).await.unwrap();
    assert_eq!(records, []);
    let (second, _) = store.lead(Epoch(0)).await.unwrap();
    assert!(second > first, "{second:?} after {first:?}");
    let (third, _) = store.lead(Epoch(second.0 + 5)).await.unwrap();
    assert_eq!(third.0, second.0 + 5, "no earlier than asked for");
    let (fourth, _) = store.lead(first).await.unwrap();
    assert!(fourth > third, "{fourth:?} after {third:?}");
}

async fn a_batch_of_an_earlier_epoch_is_refused<S: StoreUnderTest>() {
    let created = S::create().await;
    let store = created.open().await;
    let (first, _) = store.lead(Epoch(0)).await.unwrap();
    store.commit(first, put(1, "kept")).await.unwrap();
    let (second, _) = store.lead(Epoch(0)).await.unwrap();
    let late = store.commit(first, put(2, "late")).await;
    assert!(matches!(late, Err(StoreError::LostLeadership)), "{late:?}");
    store.confirm(second).await.unwrap();
    store.commit(second, put(3, "later")).await.unwrap();
    let (_, records) = store.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), named(&[(1, "kept"), (3, "later")]));
}

async fn batches_are_read_back<S: StoreUnderTest>() {
    let created = S::create().await;
    let store = created.open().await;
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    let batches: [Vec<Change>; 3] = [
        [put(1, "one"), put(2, "two"), put(3, "three")].concat(),
        // The last change of a key counts.
        [put(1, "changed"), put(4, "gone"), vec![delete(4), delete(2)], put(2, "again")].concat(),
        vec![delete(3), delete(77)],
    ];
    for batch in batches {
        store.commit(epoch, batch).await.unwrap();
        store.confirm(epoch).await.unwrap();
    }
    let expected = named(&[(1, "changed"), (2, "again")]);
    assert_eq!(names(&store.lead(Epoch(0)).await.unwrap().1), expected);
    drop(store);
    assert_eq!(names(&created.open().await.lead(Epoch(0)).await.unwrap().1), expected);
}

/// A record that is as late as any, and others that come and go behind it.
async fn the_newest_record_is_deleted<S: StoreUnderTest>() {
    let created = S::create().await;
    let store = created.open().await;
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    store.commit(epoch, [put(1, "kept"), put(2, "newest")].concat()).await.unwrap();
    let (epoch, records) = store.lead(Epoch(0)).await.unwrap();
    assert_eq!(records.len(), 2);
    let later = [put(3, "comes"), put(4, "stays")].concat();
    store.commit(epoch, later).await.unwrap();
    store.commit(epoch, vec![delete(2), delete(3)]).await.unwrap();
    let (_, records) = store.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), named(&[(1, "kept"), (4, "stays")]));
}

async fn an_empty_batch_changes_nothing<S: StoreUnderTest>() {
    let created = S::create().await;
    let store = created.open().await;
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    store.commit(epoch, put(1, "one")).await.unwrap();
    store.commit(epoch, Vec::new()).await.unwrap();
    store.commit(epoch, put(2, "two")).await.unwrap();
    let (_, records) = store.lead(Epoch(0)).await.unwrap();
    assert_eq!(names(&records), named(&[(1, "one"), (2, "two")]));
}

async fn records_survive_several_leads<S: StoreUnderTest>() {
    let created = S::create().await;
    let mut last = Epoch(0);
    for number in 0..4 {
        let store = created.open().await;
        let (epoch, records) = store.lead(Epoch(0)).await.unwrap();
        assert!(epoch > last, "{epoch:?} after {last:?}");
        assert_eq!(records.len() as u64, number);
        store.commit(epoch, put(number, "kept")).await.unwrap();
        last = epoch;
    }
}

async fn many_records_are_read_back<S: StoreUnderTest>() {
    let created = S::create().await;
    let store = created.open().await;
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    for batch in 0..50 {
        let numbers = 2_000 * batch..2_000 * (batch + 1);
        let batch = numbers.map(|number| Change::Put(global(number, "one of many")));
        store.commit(epoch, batch.collect()).await.unwrap();
    }
    drop(store);
    let (_, records) = created.open().await.lead(Epoch(0)).await.unwrap();
    assert_eq!(records.len(), 100_000);
    assert!(names(&records).iter().map(|(number, _)| *number).eq(0..100_000));
}

/// More of them than wait for their reader at a time.
async fn records_are_fed_as_they_are_loaded<S: StoreUnderTest>() {
    let created = S::create().await;
    let store = created.open().await;
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    for numbers in (0..5_000).collect::<Vec<u64>>().chunks(500) {
        // The later branch has the smaller id.
        let records =
            numbers.iter().flat_map(|&it| [branch(it, 9, 0), global(it, "g"), branch(it, 3, 1)]);
        store.commit(epoch, records.map(Change::Put).collect()).await.unwrap();
    }
    let (epoch, mut feed) = store.lead_and_feed(Epoch(0)).await.unwrap();
    let load = move || {
        (Coordinator::load_in_order(epoch, "tc".into(), Limits::default(), &mut feed), feed)
    };
    let (loaded, feed) = tokio::task::spawn_blocking(load).await.unwrap();
    assert_eq!(feed.end().unwrap(), 15_000);
    let loaded = loaded.unwrap();
    loaded.check_invariants().unwrap();
    assert_eq!(loaded.counts().active, 5_000);
}

async fn a_batch_of_megabytes_is_read_back<S: StoreUnderTest>() {
    let created = S::create().await;
    let store = created.open().await;
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    let large = ["a".repeat(4 << 20), "b".repeat(3 << 20)];
    let batch = [put(1, &large[0]), put(2, &large[1]), put(3, "small")].concat();
    store.commit(epoch, batch).await.unwrap();
    store.commit(epoch, put(4, "behind it")).await.unwrap();
    let expected = named(&[(1, &large[0]), (2, &large[1]), (3, "small"), (4, "behind it")]);
    let (_, records) = store.lead(Epoch(0)).await.unwrap();
    assert!(names(&records) == expected, "{} records", records.len());
    drop(store);
    let (_, records) = created.open().await.lead(Epoch(0)).await.unwrap();
    assert!(names(&records) == expected, "{} records", records.len());
}

/// A fixed sequence of puts and deletes, in batches of all sizes.
async fn random_batches_give_the_records_of_the_model<S: StoreUnderTest>() {
    let created = S::create().await;
    let (store, model) = (created.open().await, MemoryStore::new());
    let (epoch, _) = store.lead(Epoch(0)).await.unwrap();
    let (of_model, _) = model.lead(Epoch(0)).await.unwrap();
    let mut state = 7_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for batch in 0..200 {
        let mut changes = Vec::new();
        for _ in 0..draw(20) {
            let number = draw(50);
            match draw(3) {
                0 => changes.push(delete(number)),
                _ => changes.append(&mut put(number, &format!("batch {batch}"))),
            }
        }
        model.commit(of_model, changes.clone()).await.unwrap();
        store.commit(epoch, changes).await.unwrap();
    }
    let expected = names(&model.records());
    assert_eq!(names(&store.lead(Epoch(0)).await.unwrap().1), expected);
}
