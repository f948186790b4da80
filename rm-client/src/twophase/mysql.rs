//! MySQL and MariaDB: `XA START … XA END`, `XA PREPARE`, `XA COMMIT`, `XA RECOVER`.
//!
//! The server answers `XAER_NOTA` both for a branch that is not there and for one that another
//! session has. Beginning a branch of the same name tells them apart: it is refused as a duplicate
//! while any session has the branch, in whatever state.

use futures::FutureExt;
use futures::future::BoxFuture;
use handfast_rm_core::two_phase::{BranchName, DatabaseReply, Node, Trace};
use sqlx::mysql::{MySqlArguments, MySqlDatabaseError};
use sqlx::{MySql, MySqlConnection};

use super::database::{BranchWork, Sessions, TwoPhase, send};
use super::error::XaError;
use crate::at::AtError;
use crate::at::database::{Backend, Steps, rows};

/// "Hand" in ASCII: the format of our names, in the id of a branch.
const FORMAT: i64 = 0x4861_6e64;
/// Asks how many rows the session has written. Changes that were rolled back count too, so a branch
/// may be prepared that need not be.
const WRITTEN: &str = r"SHOW SESSION STATUS LIKE 'Handler\_%e'";
/// The counters of rows in tables. MySQL includes rows of its own temporary tables, so on MySQL
/// every branch counts as having written.
const COUNTERS: [&str; 3] = ["Handler_delete", "Handler_update", "Handler_write"];
/// A name is cut into the two parts of an id, which the server limits separately.
const PART_BYTES_MAX: usize = 64;

impl TwoPhase for MySql {
    const NAME_BYTES_MAX: usize = 2 * PART_BYTES_MAX;

    fn require(connection: &mut MySqlConnection) -> BoxFuture<'_, Result<Sessions, XaError>> {
        async {
            // The resource id comes from a table of ours.
            let table = "handfast_identity";
            if !Self::has_client_table(connection, table).await? {
                let (table, resource) = (table.to_owned(), "this MySQL database".to_owned());
                let folder = Self::FOLDER;
                let missing = AtError::ClientTableMissing { table, resource, folder };
                return Err(XaError::Database(missing.into()));
            }
            let version = "SELECT VERSION()".to_owned();
            let found = rows::<Self>(connection, version, MySqlArguments::default()).await?;
            let row = found.first().ok_or(sqlx::Error::RowNotFound)?;
            let version = Self::text(row, 0)?.unwrap_or_default();
            let detaches = "SHOW VARIABLES LIKE 'xa_detach_on_prepare'".to_owned();
            let found = rows::<Self>(connection, detaches, MySqlArguments::default()).await?;
            let detaches = found.first().map(|row| Self::text(row, 1)).transpose()?.flatten();
            sessions_of(&version, detaches.as_deref() == Some("ON"))
                .ok_or(XaError::TooOld { version })
        }
        .boxed()
    }

    fn start(name: &BranchName) -> String {
        format!("XA START {}; {WRITTEN}", id(name))
    }

    fn written(steps: &Steps<Self>) -> Result<Option<i64>, sqlx::Error> {
        let mut total = None;
        for row in steps.iter().filter_map(|step| step.as_ref().right()) {
            if !COUNTERS.contains(&Self::text(row, 0)?.unwrap_or_default().as_str()) {
                continue;
            }
            let count = Self::text(row, 1)?.and_then(|text| text.parse::<i64>().ok());
            // Without a number the branch counts as having written.
            let Some(count) = count else { return Ok(None) };
            total = Some(total.unwrap_or(0) + count);
        }
        Ok(total)
    }

    fn branch_work(
        connection: &mut MySqlConnection,
        begun: Option<i64>,
        only_reads: bool,
    ) -> BoxFuture<'_, Result<BranchWork, sqlx::Error>> {
        async move {
            if !only_reads || begun.is_none() {
                return Ok(BranchWork::Wrote(None));
            }
            let now = Self::written(&send::<Self>(connection, WRITTEN.to_owned()).await?)?;
            Ok(if now == begun { BranchWork::ReadOnly } else { BranchWork::Wrote(None) })
        }
        .boxed()
    }

    fn end_reading(name: &BranchName) -> String {
        let id = id(name);
        format!("XA END {id}; XA COMMIT {id} ONE PHASE")
    }

    fn prepare(name: &BranchName) -> String {
        let id = id(name);
        format!("XA END {id}; XA PREPARE {id}")
    }

    fn abandon(name: &BranchName) -> Vec<String> {
        let id = id(name);
        vec![format!("XA END {id}"), format!("XA ROLLBACK {id}")]
    }

    fn commit(name: &BranchName) -> String {
        format!("XA COMMIT {}", id(name))
    }

    fn roll_back(name: &BranchName) -> String {
        format!("XA ROLLBACK {}", id(name))
    }

    fn answer(error: &sqlx::Error) -> DatabaseReply {
        let Some(error) = error.as_database_error() else { return DatabaseReply::Lost };
        let error = error.try_downcast_ref::<MySqlDatabaseError>();
        error.map_or(DatabaseReply::Refused, |error| answer_of(error.number()))
    }

    fn trace<'c>(
        connection: &'c mut MySqlConnection,
        name: &'c BranchName,
        _: Option<&'c str>,
    ) -> BoxFuture<'c, Result<Trace, sqlx::Error>> {
        async move {
            let id = id(name);
            match send::<Self>(connection, format!("XA START {id}")).await {
                // A branch is begun before it is registered, so one that no session has is over.
                Ok(_) => {
                    send::<Self>(connection, format!("XA END {id}")).await?;
                    send::<Self>(connection, format!("XA ROLLBACK {id}")).await?;
                    Ok(Trace::Ended)
                }
                Err(error) if Self::answer(&error) == DatabaseReply::Busy => Ok(Trace::Open),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn prepared<'c>(
        connection: &'c mut MySqlConnection,
        node: &'c Node,
        max: usize,
    ) -> BoxFuture<'c, Result<Vec<BranchName>, sqlx::Error>> {
        async move {
            let steps = send::<Self>(connection, "XA RECOVER".to_owned()).await?;
            let mut names = Vec::new();
            for row in steps.iter().filter_map(|step| step.as_ref().right()) {
                if Self::number(row, 0)? != Some(FORMAT) {
                    continue;
                }
                // A name that is no text was made by another program, and an empty one is none of
                // this node's.
                let text = String::from_utf8(Self::bytes(row, 3)?).unwrap_or_default();
                names.extend(BranchName::parse(&text, node));
            }
            // XA RECOVER lists the whole server, so the limit is applied to what is of this node.
            names.truncate(max);
            Ok(names)
        }
        .boxed()
    }
}

/// The errors of the XA statements.
fn answer_of(number: u16) -> DatabaseReply {
    match number {
        // XAER_NOTA
        1397 => DatabaseReply::Missing,
        // XAER_RMFAIL, XAER_OUTSIDE, XAER_DUPID, XA_RETRY
        1399 | 1400 | 1440 | 3186 => DatabaseReply::Busy,
        // XA_RBROLLBACK
        1402 => DatabaseReply::Nothing,
        // XA_RBTIMEOUT, XA_RBDEADLOCK
        1613 | 1614 => DatabaseReply::RolledBack,
        // XAER_RMERR and XAER_INVAL among them.
        _ => DatabaseReply::Refused,
    }
}

/// Returns whether sessions stay with prepared branches on this server. `None`: a prepared branch
/// would end with its session.
fn sessions_of(version: &str, detaches: bool) -> Option<Sessions> {
    let number: Vec<u32> =
        version.split(|c: char| !c.is_ascii_digit()).map_while(|part| part.parse().ok()).collect();
    let oldest: &[u32] = if version.contains("MariaDB") { &[10, 5] } else { &[5, 7, 7] };
    if number.as_slice() < oldest {
        return None;
    }
    Some(if detaches { Sessions::Free } else { Sessions::Stay })
}

/// The id that the server knows a name by. Written in hexadecimal: an XID may hold quotes.
fn id(name: &BranchName) -> String {
    let text = name.to_string();
    let (global, branch) = text.split_at(text.len().min(PART_BYTES_MAX));
    format!("X'{}',X'{}',{FORMAT}", hexadecimal(global), hexadecimal(branch))
}

fn hexadecimal(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use handfast_rm_core::XidText;

    #[test]
    fn a_name_is_cut_into_an_id() {
        let node = Node::new("n").unwrap();
        let short = BranchName { node: node.clone(), branch: 1, xid: XidText::new("a:1").unwrap() };
        let text = hexadecimal("hf1/n/0000000000000001/a:1");
        assert_eq!(id(&short), format!("X'{text}',X'',1214344804"));
        let xid = XidText::new(&format!("{}:1", "a".repeat(60))).unwrap();
        let long = id(&BranchName { node, branch: 1, xid });
        let parts: Vec<usize> = long.split(',').map(|part| (part.len() - 3) / 2).collect();
        assert_eq!(parts[..2], [64, 21]);
    }

    #[test]
    fn a_version_tells_what_becomes_of_sessions() {
        let (stay, free) = (Some(Sessions::Stay), Some(Sessions::Free));
        for (version, detaches, expected) in [
            ("10.11.6-MariaDB-0+deb12u1", false, stay),
            ("10.5.0-MariaDB", false, stay),
            ("11.4.2-MariaDB-ubu2404", false, stay),
            ("10.4.34-MariaDB", false, None),
            ("8.0.35", true, free),
            ("8.0.35", false, stay),
            ("8.0.28", false, stay),
            ("5.7.7-log", false, stay),
            ("5.7.6", false, None),
            ("5.6.51", false, None),
            ("8.4.0-commercial", true, free),
            ("unknown", false, None),
        ] {
            assert_eq!(sessions_of(version, detaches), expected, "{version}");
        }
    }
}
