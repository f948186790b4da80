//! Lists, over as many turns of the engine as they take, within bounds.

use std::sync::Arc;

use handfast_core::{Coordinator, Page, PageBounds};

use super::AdminState;
use crate::engine::EngineError;

/// What one turn of the engine looks at: some 0.3 ms of work. More would hold up the requests of
/// clients.
pub(super) const TURN: PageBounds = PageBounds { items_max: usize::MAX, scanned_max: 1_024 };

/// What is shown on one page: items with their holders and waiters. More would be an answer of
/// megabytes.
const WEIGHT_MAX: usize = 4_096;

/// A full page, or a part of one: the end of the list, or as far as one request goes; then it has
/// a cursor, although it may be empty. What is rare is searched for turn by turn; clients are
/// answered in between, and what they change meanwhile is seen or not.
pub(super) async fn page<T: Send + 'static, C: Clone + Send + 'static>(
    state: &AdminState,
    start: Option<C>,
    limit: Option<usize>,
    weight: fn(&T) -> usize,
    look: impl Fn(&Coordinator, Option<C>, PageBounds) -> Page<T, C> + Send + Sync + 'static,
) -> Result<Page<T, C>, EngineError> {
    let (look, limit) = (Arc::new(look), state.page_items(limit));
    let mut page = Page { items: Vec::new(), next: start, scanned: 0 };
    let (mut weighs, scanned_max) = (0, state.config().scan_records_max);
    while page.scanned < scanned_max {
        let bounds = PageBounds {
            items_max: limit - page.items.len(),
            scanned_max: TURN.scanned_max.min(scanned_max - page.scanned),
        };
        let (turn, from) = (Arc::clone(&look), page.next.take());
        let more = state.engine().scan(move |coordinator| turn(coordinator, from, bounds)).await?;
        weighs += more.items.iter().map(weight).sum::<usize>();
        page.scanned += more.scanned;
        page.items.extend(more.items);
        page.next = more.next;
        if page.next.is_none() || page.items.len() >= limit || weighs >= WEIGHT_MAX {
            break;
        }
    }
    Ok(page)
}
