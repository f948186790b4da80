//! Numbered SQL for the client tables of Handfast, per database.
