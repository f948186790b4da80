//! Lists, over as many turns of the engine as they take.

use std::sync::Arc;

use handfast_core::{Coordinator, Page, PageBounds};

use super::AdminState;
use crate::engine::EngineError;

/// What one turn of the engine looks at: more would hold up the requests of clients.
pub(super) const TURN: PageBounds = PageBounds { items_max: usize::MAX, scanned_max: 4_096 };

/// A full page, or the rest of the list. What is rare is searched for turn by turn; clients are
/// answered in between, and what they change meanwhile is seen or not.
pub(super) async fn page<T: Send + 'static, C: Copy + Send + 'static>(
    state: &AdminState,
    mut start: Option<C>,
    limit: Option<usize>,
    look: impl Fn(&Coordinator, Option<C>, PageBounds) -> Page<T, C> + Send + Sync + 'static,
) -> Result<Page<T, C>, EngineError> {
    let (look, limit) = (Arc::new(look), state.page_items(limit));
    let mut items = Vec::new();
    loop {
        let bounds = PageBounds { items_max: limit - items.len(), ..TURN };
        let turn = Arc::clone(&look);
        let page = state.engine().view(move |coordinator| turn(coordinator, start, bounds)).await?;
        items.extend(page.items);
        start = page.next;
        if start.is_none() || items.len() >= limit {
            return Ok(Page { items, next: start });
        }
    }
}
