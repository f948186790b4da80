//! The command line.

use clap::Parser;
use clap::builder::RangedU64ValueParser;

use crate::way::SaleMethod;

/// Sell a few units to many buyers, in four ways, and prove that exactly as many were sold as there
/// were.
#[derive(Clone, Debug, Parser)]
#[command(name = "flash-sale", version)]
pub(crate) struct Options {
    /// How many want one.
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one())]
    pub(crate) buyers: u32,
    /// How many there are.
    #[arg(long, value_name = "N", default_value_t = 1_000)]
    pub(crate) units: u32,
    /// Over how many rows and locks the units are spread in the segmented way.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) segments: u32,
    /// How many buyers come at a time.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) concurrency: u16,
    /// Sell only in this way; may be given several times. All ways by default.
    #[arg(long, value_name = "WAY", value_enum)]
    pub(crate) way: Vec<SaleMethod>,
    /// `sqlite`, or the URL of a PostgreSQL, MySQL or MariaDB server on which a database may be
    /// created. It is dropped at the end.
    #[arg(long, value_name = "sqlite|URL", default_value = "sqlite")]
    pub(crate) database: String,
    /// A running coordinator; without it one is started in this process, on the embedded store.
    #[arg(long, value_name = "URL")]
    pub(crate) coordinator: Option<String>,
    /// Print one JSON object instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

impl Options {
    pub(crate) fn ways(&self) -> Vec<SaleMethod> {
        if self.way.is_empty() { SaleMethod::ALL.to_vec() } else { self.way.clone() }
    }

    /// How many will be sold.
    pub(crate) fn sold(&self) -> u32 {
        self.units.min(self.buyers)
    }
}

fn at_least_one() -> RangedU64ValueParser<u32> {
    RangedU64ValueParser::new().range(1..)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Options::command().debug_assert();
        let options = Options::try_parse_from(["flash-sale"]).unwrap();
        assert_eq!((options.buyers, options.units, options.sold()), (10_000, 1_000, 1_000));
        assert_eq!(options.ways(), SaleMethod::ALL);
        assert!(Options::try_parse_from(["flash-sale", "--buyers", "0"]).is_err());
    }
}
