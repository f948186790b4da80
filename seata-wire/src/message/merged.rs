//! Several messages in one. A merged message cannot be a part of another.

use super::Message;

/// Several requests of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedWarp {
    /// The requests.
    pub parts: Vec<Message>,
    /// The ids that the client gave the requests: one each, or none from very old peers.
    pub ids: Vec<i32>,
}

/// Answers to each part of a merged request, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergeResult {
    /// The answers.
    pub parts: Vec<Message>,
}

/// Answers to some parts of a merged request, in any order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BatchResult {
    /// The answers.
    pub parts: Vec<Message>,
    /// The ids of the requests, one for each answer.
    pub ids: Vec<i32>,
}
