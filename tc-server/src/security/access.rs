//! Checks a request's `authorization` header: authenticates the caller and authorizes the request.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::{Role, Tokens};

/// The rule of access.
#[derive(Clone, Debug)]
pub enum Access {
    /// Every client that reaches the port may do everything.
    Open,
    /// Bearers of tokens may do what their role allows.
    Tokens(Arc<Tokens>),
}

/// An authenticated caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    name: Arc<str>,
    /// `None` if no tokens are configured: everything is allowed.
    role: Option<Role>,
}

/// The permission that a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The native API.
    UseGrpc,
    /// The admin API, reading.
    Read,
    /// The admin API, acting.
    Act,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The request has no token, or an unknown one.
    #[error("a known token is needed: send `authorization: Bearer <token>`")]
    Unauthenticated,
    /// The role does not allow it.
    #[error("the role of `{name}` does not allow this: {needed} is needed")]
    Forbidden {
        /// The caller.
        name: Arc<str>,
        /// The role that would be allowed.
        needed: &'static str,
    },
}

impl AccessError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unauthenticated => "HF-ADM-UNAUTHENTICATED",
            Self::Forbidden { .. } => "HF-ADM-FORBIDDEN",
        }
    }
}

impl Caller {
    /// Returns the bearer of a token.
    #[must_use]
    pub fn bearer(name: Arc<str>, role: Role) -> Self {
        Self { name, role: Some(role) }
    }

    /// Returns the caller's name for the audit log, or `anonymous` if no tokens are configured.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// Returns whether the caller has a permission.
    #[must_use]
    pub fn may(&self, permission: Permission) -> bool {
        match (self.role, permission) {
            (None, _)
            | (Some(Role::Client), Permission::UseGrpc)
            | (Some(Role::Viewer | Role::Operator), Permission::Read)
            | (Some(Role::Operator), Permission::Act) => true,
            (Some(Role::Client), Permission::Read | Permission::Act)
            | (Some(Role::Viewer), Permission::UseGrpc | Permission::Act)
            | (Some(Role::Operator), Permission::UseGrpc) => false,
        }
    }
}

impl Permission {
    fn role_needed(self) -> &'static str {
        match self {
            Self::UseGrpc => "client",
            Self::Read => "viewer or operator",
            Self::Act => "operator",
        }
    }
}

impl Access {
    /// Returns the caller, if the request is permitted.
    ///
    /// # Errors
    ///
    /// The request has no known token, or the token's role does not allow it.
    pub fn check(&self, headers: &HeaderMap, wanted: Permission) -> Result<Caller, AccessError> {
        let caller = match self {
            Self::Open => Caller { name: Arc::from("anonymous"), role: None },
            Self::Tokens(tokens) => bearer_token(headers)
                .and_then(|token| tokens.authenticate(token))
                .ok_or(AccessError::Unauthenticated)?,
        };
        if caller.may(wanted) {
            Ok(caller)
        } else {
            Err(AccessError::Forbidden { name: caller.name, needed: wanted.role_needed() })
        }
    }

    /// Waits until the caller loses the permission. Checks again whenever a token is shut out.
    pub(super) async fn until_revoked(
        &self,
        headers: HeaderMap,
        wanted: Permission,
    ) -> AccessError {
        let Self::Tokens(tokens) = self else { return std::future::pending().await };
        // Subscribed before the check: a token that is shut out in between is noticed.
        let mut shut_out = tokens.subscribe();
        loop {
            if let Err(error) = self.check(&headers, wanted) {
                return error;
            }
            if shut_out.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}
