//! Containers that keep their order, or that cannot show that they have none (PURE).

pub(crate) mod chunked_list;
pub(crate) mod hash_index;
pub(crate) mod interner;
pub(crate) mod packed_set;
pub(crate) mod xid_map;
