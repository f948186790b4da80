//! The advice of each refusal is followed, and its effect is undone exactly.

#![expect(clippy::unwrap_used, reason = "in a test an error is a failure")]

mod advice;
mod at;
