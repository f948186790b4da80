//! The coordinator that these tests kill: a child process of the test program.

pub(crate) use handfast_test_services::ChildCoordinator as Coordinator;
