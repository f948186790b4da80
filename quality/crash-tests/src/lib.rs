//! The whole system as real processes under real faults: `handfast serve`, services and databases
//! are killed, stopped, cut off and starved while money moves and lists grow, and everything is
//! judged afterwards.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`history`] | judges what the services said they did with their lists; pure |
//! | [`work`] | what an operation does: transfers, totals, appends and reads; pure |
//! | [`fault`] | what can go wrong, and a schedule of it from a seed; pure |
//! | [`service`] | the service process: runs operations and tells what became of them |
//! | [`saga`] | the processes of a saga: a service that takes part, and a caller |
//! | [`coordinator`], [`database`], [`wire`] | the other parts of the stage |
//! | [`tmpfs`], [`namespace`] | a disk that can be filled, a host that can be cut off |
//! | [`stage`] | all of them together, and how a fault is done to them |
//! | [`verdict`] | what must hold when the faults are over |
//! | [`run`] | one run from its settings to its verdict |

pub mod coordinator;
pub mod database;
pub mod fault;
pub mod history;
pub mod namespace;
pub mod process;
pub mod run;
pub mod saga;
pub mod service;
pub mod stage;
pub mod tmpfs;
pub mod told;
pub mod verdict;
pub mod wire;
pub mod work;
