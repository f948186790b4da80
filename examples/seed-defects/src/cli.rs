//! The command line.

use clap::{Parser, Subcommand};

use crate::recipes::Recipe;

/// Play recipes for distributed locks that are wrong, step by step until they fail, beside locks
/// that do not.
#[derive(Debug, Parser)]
#[command(name = "seed-defects", version)]
pub(crate) struct Options {
    #[command(subcommand)]
    pub(crate) recipe: Chosen,
    /// A Redis for the two recipes that are about it; without it a private one is started, which
    /// takes `redis-server`.
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) redis: Option<String>,
    /// A ZooKeeper for the three recipes that are about it, as `127.0.0.1:2181`; without it a
    /// private one is started, which takes Java and ZooKeeper's classes.
    #[arg(long, value_name = "HOST:PORT", global = true)]
    pub(crate) zookeeper: Option<String>,
    /// Print one JSON object instead of a table.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The recipes to play.
#[derive(Debug, Clone, Copy, Subcommand)]
pub(crate) enum Chosen {
    /// Every recipe.
    All,
    #[command(flatten)]
    One(Recipe),
}

impl Chosen {
    pub(crate) fn recipes(self) -> Vec<Recipe> {
        match self {
            Self::All => Recipe::ALL.to_vec(),
            Self::One(recipe) => vec![recipe],
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn each_recipe_is_a_subcommand() {
        Options::command().debug_assert();
        for recipe in Recipe::ALL {
            let options = Options::try_parse_from(["seed-defects", recipe.name(), "--json"]);
            assert_eq!(options.unwrap().recipe.recipes(), [recipe]);
        }
        let options = Options::try_parse_from(["seed-defects", "all"]).unwrap();
        assert_eq!(options.recipe.recipes().len(), 14);
    }
}
