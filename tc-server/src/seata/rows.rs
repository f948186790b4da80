//! The rows of a lock key: `table:key,key;table:key`.
//!
//! A table without keys, `table:`, has no rows: seata-go sends that for a statement that matched no
//! rows. Seata Server stops reading there. Here the tables behind it are locked too.
//!
//! Table names are case-insensitive: seata-go writes them in capitals in some statements and not in
//! others. A composite key is one text with its columns joined by `_`.

use std::sync::Arc;

use handfast_core::{LockMode, RowLock};

/// Why a lock key is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum BadLockKey {
    #[error("lock key part {part:?} is not table:key,key")]
    Malformed { part: String },
    #[error("a lock key of more than {max} rows")]
    TooLong { max: usize },
}

/// Returns the rows of a lock key. Empty parts, such as the last one of seata-go, are skipped.
///
/// BOUNDED: reading stops at the first row beyond `max`. A frame has room for millions.
pub(super) fn rows(lock_key: &str, max: usize) -> Result<Vec<RowLock>, BadLockKey> {
    let mut rows = Vec::new();
    for part in lock_key.split(';').filter(|part| !part.is_empty()) {
        let bad = || BadLockKey::Malformed { part: part.chars().take(100).collect() };
        let (table, keys) = part.split_once(':').ok_or_else(bad)?;
        if table.is_empty() {
            return Err(bad());
        }
        if keys.trim().is_empty() {
            continue;
        }
        let table: Arc<str> = table.to_lowercase().into();
        let room = max - rows.len();
        rows.extend(keys.split(',').take(room.saturating_add(1)).map(|key| row(&table, key)));
        if rows.len() > max {
            return Err(BadLockKey::TooLong { max });
        }
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
        rows(lock_key, 4).unwrap().into_iter().map(text).collect()
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

    /// Regression: the lock key of seata-go's reads that match no rows was refused as malformed.
    #[test]
    fn a_table_without_keys_has_no_rows() {
        assert!(texts("order_tbl:").is_empty());
        assert!(texts("order_tbl: ;").is_empty());
        assert_eq!(texts("order_tbl:;stock_tbl:1"), ["stock_tbl/1:1"]);
    }

    #[test]
    fn malformed_parts_are_refused() {
        for bad in ["t", ":1", ":", "t:1;u"] {
            assert!(rows(bad, 4).is_err(), "{bad}");
        }
    }

    #[test]
    fn reading_stops_at_the_first_row_beyond_the_limit() {
        let too_long = Err(BadLockKey::TooLong { max: 4 });
        for long in ["t:1,2,3,4,5", "t:1,2;u:1,2,3", "t:,,,,;no colon", "t:1;t:1;t:1;t:1;t:1;bad"] {
            assert_eq!(rows(long, 4), too_long, "{long}");
        }
        assert_eq!(rows("t:1,2,3,4;", 4).map(|rows| rows.len()), Ok(4));
        assert_eq!(rows("t:1", usize::MAX).map(|rows| rows.len()), Ok(1));
    }
}
