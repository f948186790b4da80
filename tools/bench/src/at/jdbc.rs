//! Databases of the benchmark as programs in Java reach them.

use anyhow::{Context, Result};

/// The address of a database for a program in Java.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JdbcAddress {
    url: String,
    user: String,
    password: String,
}

impl JdbcAddress {
    /// Returns the address of a database on the server at a URL.
    pub(super) fn new(jdbc: &str, server: &str, database: &str) -> Result<Self> {
        let (_, rest) = server.split_once("://").context("the server's URL has no scheme")?;
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let (user, address) = authority.rsplit_once('@').context("the URL names no user")?;
        let (user, password) = user.split_once(':').unwrap_or((user, ""));
        let url = format!("{jdbc}://{address}/{database}");
        Ok(Self { url, user: user.to_owned(), password: password.to_owned() })
    }

    /// Returns URL, user and password.
    pub(super) fn arguments(&self) -> [&str; 3] {
        [&self.url, &self.user, &self.password]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_in_java_gets_its_own_kind_of_url() {
        let address = |server| JdbcAddress::new("jdbc:mysql", server, "bench").unwrap();
        let expected = |password: &str| JdbcAddress {
            url: "jdbc:mysql://127.0.0.1:3306/bench".to_owned(),
            user: "root".to_owned(),
            password: password.to_owned(),
        };
        assert_eq!(address("mysql://root:se@cret@127.0.0.1:3306"), expected("se@cret"));
        assert_eq!(address("mysql://root@127.0.0.1:3306/other?ssl-mode=x"), expected(""));
        assert!(JdbcAddress::new("jdbc:mysql", "mysql://127.0.0.1", "bench").is_err());
    }
}
