//! Lists, read in several turns of the engine, within bounds.

use std::sync::Arc;
use std::time::{Duration, Instant};

use handfast_core::{Coordinator, Page, PageBounds};

use super::AdminState;
use crate::engine::EngineError;

/// The bounds of one turn of the engine, about 0.3 ms of work. More would delay clients' requests.
pub(super) const TURN: PageBounds = PageBounds { items_max: usize::MAX, scanned_max: 1_024 };

/// The weight after which a page ends: items with their holders and waiters. More would make an
/// answer of megabytes.
const WEIGHT_MAX: usize = 4_096;

/// The time after which a page ends with what it has. Longer: a viewer that searches for rare items
/// waits for a first answer. Shorter: more requests for each search.
const PAGE_TIME_MAX: Duration = Duration::from_millis(30);

/// Returns a full page, or a shorter one at the end of the list or at a limit of one request. In
/// the latter case the page has a cursor, even if it is empty. The search for rare items takes many
/// turns. Clients are answered in between, and the list may or may not show their changes.
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
    let started = Instant::now();
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
        let is_full = page.items.len() >= limit || weighs >= WEIGHT_MAX;
        if page.next.is_none() || is_full || started.elapsed() >= PAGE_TIME_MAX {
            break;
        }
    }
    Ok(page)
}
