//! Messages about live views.

use serde::{Deserialize, Serialize};
use utoipa::IntoParams;

/// The request whose answer is watched.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LiveQuery {
    /// Its path and query, such as `/api/v1/transactions?status=active`.
    pub path: String,
}
