//! The reasons why a test cannot begin.

use handfast_server::embedded::StartError;

/// The test bench could not be set up. What a service does wrong is never such an error: an
/// assertion panics, and [`SagaRunner::run`](crate::SagaRunner::run) returns what failed.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let started = handfast_test::TestKit::start().await;
/// assert!(started.is_ok(), "{}", started.unwrap_err().code());
/// # }
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KitError {
    /// The coordinator does not start.
    #[error("the coordinator of the test does not start: {0}")]
    Coordinator(#[from] StartError),
    /// No port of the loopback interface can be listened on.
    #[error("the test cannot listen on 127.0.0.1: {0}")]
    Listen(#[source] std::io::Error),
    /// The client does not reach the coordinator.
    #[error("the client of the test does not connect: {0}")]
    Connect(#[from] handfast::Error),
    /// The tables of the library cannot be made.
    #[error("the client tables cannot be made: {0}")]
    Migrate(#[from] handfast::AtError),
    /// The database cannot be opened, or refuses the schema.
    #[error("the database of the test cannot be opened: {0}")]
    Database(#[from] sqlx::Error),
    /// The directory for the database files cannot be made.
    #[error("no directory for the databases of the test: {0}")]
    Directory(#[source] std::io::Error),
    /// Tokio's clock was paused before the kit was started.
    #[error(
        "tokio's clock is paused, so no request would ever be answered: remove `start_paused`, and \
         move the time with `TestKit::advance`"
    )]
    PausedClock,
}

impl KitError {
    /// Returns the stable code.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Coordinator(_) => "HF-TEST-COORDINATOR",
            Self::Listen(_) => "HF-TEST-LISTEN",
            Self::Connect(error) => error.code(),
            Self::Migrate(error) => error.code(),
            Self::Database(_) => "HF-TEST-DATABASE",
            Self::Directory(_) => "HF-TEST-DIRECTORY",
            Self::PausedClock => "HF-TEST-PAUSED-CLOCK",
        }
    }
}
