//! A change of one row, as SQLite reports it.

/// A row that is about to be inserted, updated or deleted.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The table, qualified by its database unless that is `main`.
    pub(crate) table: String,
    /// The row before the change, unless it is inserted.
    pub(crate) old: Option<Vec<Cell>>,
    /// The row after the change, unless it is deleted.
    pub(crate) new: Option<Vec<Cell>>,
}

/// One value of a row, or why it could not be read: SQLite does not store a virtual column.
pub(crate) type Cell = Result<Value, String>;

/// A value by its storage class.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Null,
    Integer(i64),
    Real(f64),
    Text(String),
    Blob(Vec<u8>),
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Null, Self::Null) => true,
            (Self::Integer(a), Self::Integer(b)) => a == b,
            (Self::Real(a), Self::Real(b)) => a.to_bits() == b.to_bits(),
            (Self::Text(a), Self::Text(b)) => a == b,
            (Self::Blob(a), Self::Blob(b)) => a == b,
            (Self::Null | Self::Integer(_) | Self::Real(_) | Self::Text(_) | Self::Blob(_), _) => {
                false
            }
        }
    }
}
