//! The names of Seata's resources in the core.
//!
//! A Go client names a database by its DSN, which includes the password. The core, its store, the
//! views and the log get the name without it. Each connection keeps its own names of the resources
//! it registered. Actions of TCC and annotated sagas are named within their application, since two
//! applications may have actions of the same name. A name that can only be a database's is never an
//! action's. A name that may be either is an action's for the client that registers a branch of an
//! action under it.

use std::sync::Arc;

use handfast_core::Mode;
use handfast_seata_wire::value::BranchType;
use sha2::{Digest as _, Sha256};

/// Replaces a password.
const MASK: &str = "***";

/// Keeps the hashes of names different from other hashes of the same texts.
const MARK_DOMAIN: &str = "handfast resource ";

const PORT_DIGITS_MAX: usize = 5;

/// The prefix of a Java client's database names.
pub(super) const JDBC: &str = "jdbc:";

/// The keys before a password in the keyword form and in the parameters of a URL.
const PASSWORD_KEYS: [&str; 2] = ["password", "pwd"];

/// Returns the resource without the password of a DSN or URL: `user:***@tcp(host)/db`. The name
/// `host:port/db` is unchanged: two databases must not get the same name.
///
/// Clients cut a name at its first `?`. If the password contains one, only `user:pa` is left, and
/// nothing says which database it is. A few digits of a hash then replace the masked part, so that
/// two such names stay different. They are too few to find the password by.
pub(super) fn masked(resource: &str) -> String {
    let text = without_values(resource);
    let (scheme, rest) = text.split_at(scheme_bytes(&text));
    let is_url = !scheme.is_empty() || text.starts_with(JDBC);
    // The last one: a password may contain others.
    let end = rest.rfind('@').filter(|&at| is_url || is_go_address(&rest[at + 1..]));
    let Some(colon) = rest[..end.unwrap_or(rest.len())].find(':') else { return text };
    if let Some(end) = end {
        return format!("{scheme}{}{MASK}{}", &rest[..=colon], &rest[end..]);
    }
    // No address follows a password here, so that a colon stands before a port or in a cut DSN.
    let is_whole = match scheme {
        "" => !is_user(&rest[..colon]) || rest.contains('/') && is_address(rest),
        _ => is_address(rest),
    };
    if is_whole { text } else { format!("{scheme}{}{MASK}~{}", &rest[..=colon], mark(resource)) }
}

/// Returns whether the name may contain a password, so that it may be shown only masked.
pub(super) fn may_hold_password(resource: &str) -> bool {
    masked(resource) != resource
}

/// Returns whether only a database can have this name. An action may have any other.
pub(super) fn is_database(resource: &str) -> bool {
    let is_masked = may_hold_password(resource);
    let of_user = resource.rsplit_once('@').map_or("", |(_, host)| host);
    resource.starts_with(JDBC)
        || without_values(resource) != resource
        || is_masked && scheme_bytes(resource) > 0
        || is_masked && is_go_address(of_user)
}

/// Returns the length of the leading `scheme://`, if there is one. A password may contain `://`
/// too.
fn scheme_bytes(resource: &str) -> usize {
    let own = resource.strip_prefix(JDBC);
    let is_of_scheme =
        |it: char| it.is_ascii_alphanumeric() || "+-.".contains(it) || own.is_some() && it == ':';
    match resource.find("://") {
        Some(at) if at > 0 && resource[..at].chars().all(is_of_scheme) => at + 3,
        Some(_) | None => 0,
    }
}

/// Returns whether the text can follow the `@` of a Go client's DSN: `tcp(host:3306)/db` or `/db`.
fn is_go_address(text: &str) -> bool {
    text.starts_with('/') || text.contains(")/")
}

/// Returns whether the text begins with an address, in which a colon is always before a port:
/// `host:3306/db`, `one:1|other:2`, `[::1]:5432`.
fn is_address(text: &str) -> bool {
    let hosts = text.split(['/', ';']).next().unwrap_or(text);
    hosts.split(['|', ',']).all(|host| {
        let behind = host.rsplit_once(']').map_or(host, |(_, behind)| behind);
        let port = behind.split_once(':').map_or("", |(_, port)| port);
        port.len() <= PORT_DIGITS_MAX && port.chars().all(|it| it.is_ascii_digit())
    })
}

/// Returns a short hash that distinguishes masked names with the same beginning.
fn mark(resource: &str) -> String {
    let hash = Sha256::new().chain_update(MARK_DOMAIN).chain_update(resource).finalize();
    format!("{:02x}{:02x}", hash[0], hash[1])
}

/// Returns whether a password may follow this text and a colon. None follows an address.
fn is_user(text: &str) -> bool {
    text != "jdbc" && !text.contains(['(', '/', '='])
}

/// Masks the values of `password=` and `pwd=`, in any case, quoted or not.
fn without_values(resource: &str) -> String {
    // ASCII alone, which changes no length: positions in one text are those in the other.
    let lower = resource.to_ascii_lowercase();
    let value = |(at, key): (usize, &str)| {
        let behind = &resource[at + key.len()..];
        let value = behind.trim_start().strip_prefix('=')?.trim_start();
        Some(resource.len() - value.len())
    };
    let keys = PASSWORD_KEYS.iter().flat_map(|key| lower.match_indices(key));
    let mut starts: Vec<usize> = keys.filter_map(value).collect();
    starts.sort_unstable();
    let (mut kept, mut at) = (String::new(), 0);
    let (mut seen, mut is_of_host) = (0, false);
    for start in starts {
        let between = &resource[seen..start];
        is_of_host =
            between.rfind(['(', ')']).map_or(is_of_host, |it| between[it..].starts_with('('));
        seen = start;
        // A key within a value is a part of that value.
        if start >= at {
            kept.push_str(&resource[at..start]);
            kept.push_str(MASK);
            at = start + value_bytes(is_of_host, &resource[start..]);
        }
    }
    kept + &resource[at..]
}

/// Returns the length of the value at the beginning of the text. Within quotes a backslash escapes
/// the next character. Within the parameters of one host, `(host=a,password=b)`, a value ends with
/// its parameter.
fn value_bytes(is_of_host: bool, text: &str) -> usize {
    let close = match text.chars().next() {
        Some(quote @ ('\'' | '"')) => quote,
        Some('{') => '}',
        Some(_) | None => {
            let ends = |it: char| {
                it.is_whitespace() || "&;".contains(it) || is_of_host && ",|)".contains(it)
            };
            return text.find(ends).unwrap_or(text.len());
        }
    };
    let mut hidden = false;
    for (at, it) in text.char_indices().skip(1) {
        if it == close && !hidden {
            return at + 1;
        }
        hidden = it == '\\' && !hidden;
    }
    text.len()
}

/// Returns the core's name for the resource of a branch of this type. Names of actions and state
/// machines are not masked: two of them must not become the same.
pub(super) fn name_of(kind: BranchType, application: &str, resource: &str) -> Arc<str> {
    match kind {
        BranchType::At | BranchType::Xa => masked(resource).into(),
        BranchType::Saga => resource.into(),
        BranchType::Tcc | BranchType::SagaAnnotation => format!("{application}/{resource}").into(),
    }
}

/// Returns the core's mode for a branch of this type.
pub(super) fn mode_of(kind: BranchType) -> Mode {
    match kind {
        BranchType::At => Mode::At,
        BranchType::Tcc => Mode::Tcc,
        BranchType::Xa => Mode::Xa,
        BranchType::Saga | BranchType::SagaAnnotation => Mode::Saga,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn names_contain_no_passwords() {
        for (resource, expected) in [
            ("root:12345678@tcp(127.0.0.1:3306)/demo", "root:***@tcp(127.0.0.1:3306)/demo"),
            ("root:p@ss:w/d@tcp(db)/demo", "root:***@tcp(db)/demo"),
            ("postgres://me:secret@db/demo", "postgres://me:***@db/demo"),
            ("jdbc:mysql://127.0.0.1:3306/demo", "jdbc:mysql://127.0.0.1:3306/demo"),
            ("jdbc:mysql://me:secret@db:3306/demo", "jdbc:mysql://me:***@db:3306/demo"),
            ("root:a://b@tcp(db)/demo", "root:***@tcp(db)/demo"),
            ("root:pa", "root:***~cdcc"),
            ("root:p@ss", "root:***~bc00"),
            ("root:pa/ss", "root:***~6de4"),
            ("root:123456", "root:***~a27d"),
            ("jdbc:a://user:pw@host", "jdbc:a://user:***@host"),
            ("jdbc:a://user:pw", "jdbc:a://user:***~f5fa"),
            ("postgres://me:p", "postgres://me:***~818c"),
            ("jdbc:mysql://(host=a|password=b)/x", "jdbc:mysql://(host=a|password=***)/x"),
            ("jdbc:mysql:loadbalance://a:1|b:2/x", "jdbc:mysql:loadbalance://a:1|b:2/x"),
            ("jdbc:sqlserver://db:1433;databaseName=x", "jdbc:sqlserver://db:1433;databaseName=x"),
            ("postgres://[::1]:5432/x", "postgres://[::1]:5432/x"),
            ("postgres://db:5432", "postgres://db:5432"),
            ("host=db user=u password=secret dbname=x", "host=db user=u password=*** dbname=x"),
            ("host=db:5 PWD = 'p@:\\' s' dbname=x", "host=db:5 PWD = *** dbname=x"),
            ("jdbc:sqlserver://db;password={a;b};x=y", "jdbc:sqlserver://db;password=***;x=y"),
            ("postgres://db/x?password=secret&a=b", "postgres://db/x?password=***&a=b"),
            ("password=a pwd=b", "password=*** pwd=***"),
            ("tcp(db:3306)/demo", "tcp(db:3306)/demo"),
            ("db:3306/demo", "db:3306/demo"),
            ("jdbc:x", "jdbc:x"),
            ("prepare@stock", "prepare@stock"),
            ("", ""),
        ] {
            assert_eq!(masked(resource), expected);
        }
    }

    /// The names differ only in their passwords.
    #[test]
    fn masked_names_stay_distinct() {
        let names = ["root:pa", "root:pb", "root:p@ss", "root:p@st", "a://u:pa", "a://u:pb"];
        let shown: HashSet<String> = names.into_iter().map(masked).collect();
        assert_eq!(shown.len(), names.len(), "{shown:?}");
    }

    #[test]
    fn actions_are_named_within_their_application() {
        assert_eq!(&*name_of(BranchType::Tcc, "shop", "deduct"), "shop/deduct");
        assert_eq!(&*name_of(BranchType::At, "shop", "jdbc:x"), "jdbc:x");
    }

    #[test]
    fn actions_are_distinguished_from_databases() {
        for database in [
            "jdbc:mysql://127.0.0.1:3306/demo",
            "root:12345678@tcp(127.0.0.1:3306)/demo",
            "root:12345678@/demo",
            "root:a://b@unix(/tmp/my.sock)/demo",
            "postgres://me:secret@db/demo",
            "host=db user=u password=secret dbname=x",
        ] {
            assert!(is_database(database), "{database}");
        }
        for action in ["deduct", "stock:deduct", "stock:deduct@v2", "shop#group", "a@b/c"] {
            assert!(!is_database(action), "{action}");
            assert_eq!(*name_of(BranchType::Tcc, "shop", action), format!("shop/{action}"));
        }
    }
}
