//! The answers to a merged request.

use handfast_seata_wire::message::{MergeResult, Message};

/// Merges the answers to the parts of a merged request into one frame. If one answer is missing,
/// the client would assign the others to the wrong parts. Then each answer gets a frame of its own,
/// which clients of all versions read. Very old clients send no ids and get no answer then.
pub(super) fn merge_or_split(
    id: i32,
    ids: &[i32],
    answers: Vec<Option<Message>>,
) -> Vec<(i32, Message)> {
    if answers.iter().all(Option::is_some) {
        let parts = answers.into_iter().flatten().collect();
        return vec![(id, Message::MergeResult(MergeResult { parts }))];
    }
    let apart = ids.iter().zip(answers);
    apart.filter_map(|(&id, answer)| answer.map(|answer| (id, answer))).collect()
}
