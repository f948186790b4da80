//! Parts of tests of traces: the OpenTelemetry Collector as a process, the spans that it has
//! received, and a picture of a trace for the documentation.
//!
//! The collector is built from its Go modules (`go/`), which takes minutes the first time. The
//! spans are read from the file that it writes, not from the programs that sent them.

mod collector;
mod picture;
mod span;
mod toolchain;

pub use collector::Collector;
pub use picture::draw;
pub use span::{Kind, Span, Trace};
