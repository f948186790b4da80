//! The rows of a lock key: `table:key,key;table:key`.
//!
//! Table names count without regard to case: seata-go writes them in capitals in some statements
//! and not in others. A composite key is one text, its columns joined by `_`; a key of one column
//! is the canonical key of a native client.

use std::sync::Arc;

use handfast_core::{LockMode, RowLock};

/// Why a lock key means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lock key part {part:?} is not table:key,key")]
pub(super) struct BadLockKey {
    part: String,
}

/// The rows. Empty parts, such as seata-go's last one, are none.
pub(super) fn rows(lock_key: &str) -> Result<Vec<RowLock>, BadLockKey> {
    let mut rows = Vec::new();
    for part in lock_key.split(';').filter(|part| !part.is_empty()) {
        let bad = || BadLockKey { part: part.chars().take(100).collect() };
        let (table, keys) = part.split_once(':').ok_or_else(bad)?;
        if table.is_empty() || keys.is_empty() {
            return Err(bad());
        }
        let table: Arc<str> = table.to_lowercase().into();
        rows.extend(keys.split(',').map(|key| row(&table, key)));
    }
    Ok(rows)
}

fn row(table: &Arc<str>, key: &str) -> RowLock {
    let key = format!("{}:{key}", key.len()).into_bytes().into();
    RowLock { table: Arc::clone(table), key, mode: LockMode::Exclusive }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lock_key: &str) -> Vec<String> {
        let text = |row: RowLock| format!("{}/{}", row.table, String::from_utf8_lossy(&row.key));
        rows(lock_key).unwrap().into_iter().map(text).collect()
    }

    #[test]
    fn every_row_is_named() {
        assert_eq!(
            texts("stock_tbl:1,2;ORDER_TBL:7_100;"),
            ["stock_tbl/1:1", "stock_tbl/1:2", "order_tbl/5:7_100"]
        );
        assert_eq!(texts("t:a:b"), ["t/3:a:b"]);
        assert!(texts("").is_empty());
    }

    #[test]
    fn malformed_parts_are_refused() {
        for bad in ["t", ":1", "t:", "t:1;u"] {
            assert!(rows(bad).is_err(), "{bad}");
        }
    }
}
