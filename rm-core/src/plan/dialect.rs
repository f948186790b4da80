//! The three families of SQL that the planner speaks.

/// The SQL family of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// PostgreSQL 13 and later.
    Postgres,
    /// MySQL 8.0 and MariaDB 10.6 and later. What only one of the two takes is not generated.
    MySql,
    /// SQLite 3.35 and later (the first with RETURNING).
    Sqlite,
}

impl Dialect {
    /// The name as error texts and test cases spell it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::Sqlite => "sqlite",
        }
    }

    /// Returns whether a change can return the rows it wrote and still report how many those were.
    ///
    /// MariaDB has RETURNING, but its answer then carries neither the affected rows nor the last
    /// insert id, which the application may want.
    pub fn returns_rows(self) -> bool {
        match self {
            Self::Postgres | Self::Sqlite => true,
            Self::MySql => false,
        }
    }
}
