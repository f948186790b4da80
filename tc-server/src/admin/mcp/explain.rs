//! Why a transaction is as it is: its course, its locks and its errors in plain English.

use rmcp::model::JsonObject;

use super::api::Api;
use super::tool::{ITEMS_DEFAULT, Refusal};
use crate::admin::model::{Resources, Status, Transaction, TransactionDetail, TransactionPage};

mod sentences;

use sentences::explained;

/// The most transactions of one label that are explained, and the most that one of them waits for.
const EXPLAINED_MAX: usize = 3;

/// Answers for an XID, or for the transactions that have a label: the unfinished ones, or the
/// youngest if all have ended.
pub(super) async fn answer(api: &Api, arguments: JsonObject) -> Result<String, Refusal> {
    let text = |name| arguments.get(name).and_then(|value| value.as_str());
    if let Some(xid) = text("xid") {
        return explain(api, xid).await;
    }
    let Some(label) = text("label") else {
        let message = "give an `xid`, or a `label` such as order=42".to_owned();
        return Err(Refusal { code: String::new(), message });
    };
    let found = labelled(api, label).await?;
    let Some(youngest) = found.first() else {
        return Ok(format!(
            "No transaction has the label {label}. It was never begun with this label, or it ended \
             longer ago than the coordinator remembers."
        ));
    };
    let mut unfinished: Vec<&Transaction> = found.iter().filter(|it| !has_ended(it)).collect();
    if unfinished.is_empty() {
        unfinished.push(youngest);
    }
    let mut texts = Vec::new();
    if found.len() > 1 {
        texts.push(overview(label, &found));
    }
    for transaction in unfinished.into_iter().take(EXPLAINED_MAX) {
        texts.push(explain(api, &transaction.xid).await?);
    }
    Ok(texts.join("\n\n"))
}

async fn labelled(api: &Api, label: &str) -> Result<Vec<Transaction>, Refusal> {
    let mut arguments = JsonObject::new();
    arguments.insert("label".to_owned(), label.into());
    arguments.insert("limit".to_owned(), ITEMS_DEFAULT.into());
    let page: TransactionPage = api.read("/api/v1/transactions", arguments).await?;
    Ok(page.items)
}

fn has_ended(transaction: &Transaction) -> bool {
    matches!(transaction.status, Status::Committed | Status::RolledBack)
}

/// Returns a sentence about all transactions of a label.
fn overview(label: &str, found: &[Transaction]) -> String {
    let ended = found.iter().filter(|it| has_ended(it)).count();
    let open = found.len() - ended;
    format!(
        "{} transactions have the label {label}, of which {open} have not ended and {ended} have.",
        found.len()
    )
}

async fn explain(api: &Api, xid: &str) -> Result<String, Refusal> {
    let detail = show(api, xid).await?;
    let mut blockers = Vec::new();
    let behind = detail.waits.iter().flat_map(|wait| &wait.behind);
    for blocker in behind.take(EXPLAINED_MAX) {
        // It may have been forgotten meanwhile, and then it is not what is in the way.
        if let Ok(blocker) = show(api, blocker).await {
            blockers.push(blocker);
        }
    }
    let resources: Resources = api.read("/api/v1/resources", JsonObject::new()).await?;
    Ok(explained(&detail, &blockers, &resources))
}

async fn show(api: &Api, xid: &str) -> Result<TransactionDetail, Refusal> {
    let mut arguments = JsonObject::new();
    arguments.insert("xid".to_owned(), xid.into());
    api.read("/api/v1/transactions/{xid}", arguments).await
}
