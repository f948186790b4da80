//! The tools: a name, what it is for, and the request of the admin API that it makes.

use rmcp::model::JsonObject;
use serde_json::Value;

use super::api::Api;
use super::explain;

/// The items of a list that says no limit, and the most: a program reads every one of them.
pub(super) const ITEMS_DEFAULT: u64 = 20;
pub(super) const ITEMS_MAX: u64 = 100;

/// The kind of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolKind {
    /// It reads one answer of the API.
    Read,
    /// It composes several.
    Explain,
    /// It acts. Operators alone see it.
    Act,
}

/// A tool.
#[derive(Debug)]
pub(super) struct ToolSpec {
    pub(super) name: &'static str,
    pub(super) kind: ToolKind,
    /// The path of the request, in the API document, whose parameters are the tool's.
    pub(super) path: &'static str,
    pub(super) description: &'static str,
}

/// Why a tool has no answer: a problem of the API.
#[derive(Debug)]
pub(super) struct Refusal {
    /// The stable code; empty for a wrong call of the tool itself.
    pub(super) code: String,
    pub(super) message: String,
}

impl Refusal {
    pub(super) fn of(error: &dyn std::error::Error) -> Self {
        Self { code: String::new(), message: error.to_string() }
    }
}

const fn read(name: &'static str, path: &'static str, description: &'static str) -> ToolSpec {
    ToolSpec { name, kind: ToolKind::Read, path, description }
}

pub(super) const TOOLS: [ToolSpec; 14] = [
    ToolSpec {
        name: "explain_transaction",
        kind: ToolKind::Explain,
        path: "/api/v1/transactions",
        description: "Says in plain English how a transaction stands, why it is stuck if it is, \
                      and what can be done: from its course, its locks and its errors. Give its \
                      `xid`, or a `label` such as order=42.",
    },
    read(
        "find_transactions",
        "/api/v1/transactions",
        "Lists global transactions, the youngest first: by label, text, status, application, \
         resource, table, age or time.",
    ),
    read(
        "show_transaction",
        "/api/v1/transactions/{xid}",
        "Shows one transaction: its branches with their errors and dirty rows, its course, the \
         rows that it waits for, and what is to come.",
    ),
    read(
        "list_locks",
        "/api/v1/locks",
        "Lists locked rows with the transactions that hold them and those that wait for them.",
    ),
    read(
        "show_lock_queue",
        "/api/v1/locks/queue",
        "Lists the requests that wait for one row, next first.",
    ),
    read(
        "show_wait_graph",
        "/api/v1/locks/graph",
        "Shows which transaction waits for which, the longest waiting first.",
    ),
    read(
        "list_deadlocks",
        "/api/v1/locks/deadlocks",
        "Shows the deadlocks that were refused last, with their cycles.",
    ),
    read(
        "list_named_locks",
        "/api/v1/named-locks",
        "Lists named locks with their holders and queues.",
    ),
    read(
        "find_sagas",
        "/api/v1/sagas",
        "Lists sagas, the youngest first: by key, name, status, or the signal that they wait for.",
    ),
    read(
        "show_saga",
        "/api/v1/sagas/{xid}",
        "Shows one saga: its steps with their inputs, outputs and errors, and the next attempts.",
    ),
    read(
        "show_status",
        "/api/v1/status",
        "Shows how many transactions the coordinator has in each state, and what is owed.",
    ),
    read(
        "list_resources",
        "/api/v1/resources",
        "Lists the databases and services that take part, how many processes serve each, and \
         what phase two waits for.",
    ),
    read(
        "read_audit_log",
        "/api/v1/audit",
        "Lists what operators did, latest first, as the asked node has recorded it.",
    ),
    ToolSpec {
        name: "act_on_transactions",
        kind: ToolKind::Act,
        path: "/api/v1/transactions/bulk",
        description: "Retries, pauses, resumes, resolves or rolls back transactions. Call it \
                      first without `dry_run`: that changes nothing, and says of each transaction \
                      what would change or why it would be refused. Let a person see this. Then \
                      call it with `dry_run` false, the `targets` that would change, and the \
                      `confirmation` of the dry run.",
    },
];

impl ToolSpec {
    /// Calls the tool. Returns its answer, a JSON text or plain English.
    pub(super) async fn call(
        &self,
        api: &Api,
        mut arguments: JsonObject,
    ) -> Result<String, Refusal> {
        match self.kind {
            ToolKind::Read => {
                if super::schema::has_limit(self) {
                    bound(&mut arguments);
                }
                api.get(self.path, arguments).await
            }
            ToolKind::Explain => explain::answer(api, arguments).await,
            ToolKind::Act => {
                if let Some(Value::Object(filter)) = arguments.get_mut("filter") {
                    bound(filter);
                }
                api.post(self.path, arguments).await
            }
        }
    }
}

/// Bounds the number of items that are asked for (BOUNDED).
fn bound(arguments: &mut JsonObject) {
    let asked = arguments.get("limit").map(Value::as_u64);
    let limit = match asked {
        None => ITEMS_DEFAULT,
        Some(Some(asked)) => asked.min(ITEMS_MAX),
        // What is no number is refused by the API.
        Some(None) => return,
    };
    arguments.insert("limit".to_owned(), limit.into());
}
