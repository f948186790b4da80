//! Messages about the caller, and how a browser signs in.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The caller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Me {
    /// The name of its token; `anonymous` if no tokens are configured.
    pub name: String,
    /// The caller's role.
    pub role: AdminRole,
    /// Whether tokens are configured; if not, every caller may do everything.
    pub has_tokens: bool,
}

/// The role of a caller of the admin API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AdminRole {
    /// Reads.
    Viewer,
    /// Reads and acts.
    Operator,
}

/// A token, to be changed for a cookie.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignInRequest {
    /// The token.
    pub token: String,
}

impl fmt::Debug for SignInRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignInRequest").finish_non_exhaustive()
    }
}
