//! Carries the XID between services.
