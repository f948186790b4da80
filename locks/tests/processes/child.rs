//! The role of this test program's child processes, see [`run_role`].

pub(crate) use handfast_test_services::report;
use handfast_test_services::{RoleProcess, run_role};

use crate::part::{Script, play};

/// The entry of a child process. Without a role there is nothing to do.
#[test]
fn runs_its_role() {
    run_role(async |role| play(role.input()).await);
}

/// Starts a child that plays its part of a script.
pub(crate) fn start(script: &Script) -> RoleProcess {
    RoleProcess::start("client", script, &[])
}
