//! From a request's `authorization` header to a caller who may, or may not.

use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;

use super::{Role, Tokens};

/// Who is let in.
#[derive(Clone, Debug)]
pub enum Access {
    /// Everyone who reaches the port, for everything.
    Open,
    /// The bearers of tokens, for what their role allows.
    Tokens(Arc<Tokens>),
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    name: Arc<str>,
    /// `None` where no tokens are configured: everything is allowed.
    role: Option<Role>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The native API.
    UseGrpc,
    /// The admin API, reading.
    Read,
    /// The admin API, acting.
    Act,
}

/// The caller is turned away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No token, or one that nobody knows.
    #[error("a known token is needed: send `authorization: Bearer <token>`")]
    Unauthenticated,
    /// The role does not allow it.
    #[error("the role of `{name}` does not allow this: {needed} is needed")]
    Forbidden {
        /// The caller.
        name: Arc<str>,
        /// What would be allowed to.
        needed: &'static str,
    },
}

impl AccessError {
    /// The stable code.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unauthenticated => "HF-ADM-UNAUTHENTICATED",
            Self::Forbidden { .. } => "HF-ADM-FORBIDDEN",
        }
    }
}

impl Caller {
    /// The bearer of a token.
    #[must_use]
    pub fn bearer(name: Arc<str>, role: Role) -> Self {
        Self { name, role: Some(role) }
    }

    /// The caller's name, for the audit log; `anonymous` where no tokens are configured.
    #[must_use]
    pub fn name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    fn may(&self, permission: Permission) -> bool {
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
    /// The caller, if it may.
    ///
    /// # Errors
    ///
    /// It shows no known token, or its role does not allow what it asks for.
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

    /// Checks again whenever a token is shut out, until the caller may no more.
    pub(super) async fn shuts_out(&self, headers: HeaderMap, wanted: Permission) -> AccessError {
        let Self::Tokens(tokens) = self else { return std::future::pending().await };
        let mut shut_out = tokens.listen();
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
