//! Properties of fences in Redis alone.

use std::time::Duration;

use handfast::fence::{Fence, FenceError, Fenced, FencedScript, Operation};
use redis::aio::MultiplexedConnection;

use crate::subject::{RedisSubject, fence};

async fn ask<T: redis::FromRedisValue>(
    connection: &mut MultiplexedConnection,
    words: &[&str],
) -> T {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command.query_async(connection).await.unwrap()
}

fn key_of(xid: &handfast::Xid) -> String {
    format!("handfast:fence:{xid}:7")
}

#[tokio::test]
async fn the_work_has_its_own_keys_arguments_and_result() {
    let mut connection = RedisSubject::connect().await.connection;
    let (xid, fence) = fence();
    let script = FencedScript::new(
        "local all = { #KEYS, #ARGV, KEYS[1], KEYS[2], ARGV[1], ARGV[2] }
         for at, value in ipairs(all) do all[at] = tostring(value) end
         return table.concat(all, ' ')",
    );
    let call = script.key(format!("a:{xid}")).key(format!("b:{xid}")).arg(1).arg("two");
    let ended: Fenced<String> = call.run(&mut connection, &fence, Operation::Try).await.unwrap();
    assert_eq!(ended, Fenced::Ran(format!("2 2 a:{xid} b:{xid} 1 two")));
    // The same script, called for another operation.
    let ended: Fenced<String> = call.run(&mut connection, &fence, Operation::Try).await.unwrap();
    assert_eq!(ended, Fenced::AlreadyDone);
}

#[tokio::test]
async fn work_may_return_nothing() {
    let mut connection = RedisSubject::connect().await.connection;
    let (_, fence) = fence();
    let script = FencedScript::new("redis.call('PING') -- and no more");
    let ended: Fenced<()> =
        script.call().run(&mut connection, &fence, Operation::Try).await.unwrap();
    assert_eq!(ended, Fenced::Ran(()));
}

#[tokio::test]
async fn an_error_returned_or_raised_leaves_the_fence_as_it_was() {
    let mut connection = RedisSubject::connect().await.connection;
    for lua in ["return redis.error_reply('TOO-FEW points')", "error('TOO-FEW points')"] {
        let (xid, fence) = fence();
        let script = FencedScript::new(lua);
        let failed = script.call().run::<()>(&mut connection, &fence, Operation::Try).await;
        let error = failed.unwrap_err();
        assert_eq!(error.code(), "HF-FENCE-REDIS");
        assert!(error.to_string().contains("TOO-FEW"), "{error}");
        let kept: bool = ask(&mut connection, &["EXISTS", &key_of(&xid)]).await;
        assert!(!kept, "{lua}");
    }
}

#[tokio::test]
async fn only_final_fences_expire() {
    let mut connection = RedisSubject::connect().await.connection;
    let (xid, fence) = fence();
    let script = FencedScript::new("return 1").retention(Duration::from_secs(100));
    let mut left = Vec::new();
    for operation in [Operation::Try, Operation::Confirm] {
        let ended: Fenced<i64> =
            script.call().run(&mut connection, &fence, operation).await.unwrap();
        assert_eq!(ended, Fenced::Ran(1));
        left.push(ask::<i64>(&mut connection, &["TTL", &key_of(&xid)]).await);
    }
    assert_eq!(left[0], -1, "a branch that is only tried stays");
    assert!((1..=100).contains(&left[1]), "{left:?}");
    let kept = FencedScript::new("return 1").retention(Duration::MAX);
    let (_, forever) = crate::subject::fence();
    let ended = kept.call().run::<i64>(&mut connection, &forever, Operation::Cancel).await;
    assert_eq!(ended.unwrap(), Fenced::Empty);
}

#[tokio::test]
async fn a_slot_is_part_of_the_name() {
    let mut connection = RedisSubject::connect().await.connection;
    let (xid, fence) = fence();
    let script = FencedScript::new("return 1");
    let call = script.key("points:{7}").slot("7");
    let ended: Fenced<i64> = call.run(&mut connection, &fence, Operation::Try).await.unwrap();
    assert_eq!(ended, Fenced::Ran(1));
    let named = format!("handfast:fence:{{7}}:{xid}:7");
    let kept: bool = ask(&mut connection, &["EXISTS", &named]).await;
    assert!(kept);
}

#[tokio::test]
async fn a_foreign_state_is_refused() {
    let mut connection = RedisSubject::connect().await.connection;
    let (xid, fence): (_, Fence) = fence();
    let _: i64 = ask(&mut connection, &["HSET", &key_of(&xid), "status", "9"]).await;
    let script = FencedScript::new("return 1");
    let error: FenceError =
        script.call().run::<i64>(&mut connection, &fence, Operation::Try).await.unwrap_err();
    assert!(error.to_string().contains("status 9"), "{error}");
}
