//! The whole system as real processes under real faults: `handfast serve`, services and databases
//! are killed, stopped, cut off and starved while money moves and lists grow, and everything is
//! judged afterwards.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`history`] | judges the reported operations on lists; pure |
//! | [`work`] | operations: transfers, totals, appends and reads; pure |
//! | [`fault`] | faults, and a schedule of them from a seed; pure |
//! | [`service`] | the service process: runs operations and reports their ends |
//! | [`saga`] | the processes of a saga: a service that takes part, and a caller |
//! | [`coordinator`], [`database`], [`wire`] | the other parts of the stage |
//! | [`shared_store`] | the store of several coordinators |
//! | [`tmpfs`] | a disk that can be filled |
//! | [`namespace`], [`network`] | a host that can be cut off, and several |
//! | [`program`], [`event`] | how a part is started, and what services report |
//! | [`stage`] | all of them together, and how a fault is done to them |
//! | [`verdict`] | the checks when the faults are over |
//! | [`run`] | one run from its settings to its verdict |
//! | [`cluster`] | the same with several coordinators on one store |

pub mod cluster;
pub mod coordinator;
pub mod database;
pub mod event;
pub mod fault;
pub mod history;
pub mod namespace;
pub mod network;
pub mod program;
pub mod run;
pub mod saga;
pub mod service;
pub mod shared_store;
pub mod stage;
pub mod tmpfs;
pub mod verdict;
pub mod wire;
pub mod work;
