//! Several messages in one. A merged message cannot be a part of another.

use super::Message;

/// Several requests of a client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MergedWarp {
    /// The requests.
    pub parts: Vec<Message>,
    /// Their ids in the client's own counting; as many, or none from very old peers.
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
    /// The ids of the requests; as many.
    pub ids: Vec<i32>,
}
