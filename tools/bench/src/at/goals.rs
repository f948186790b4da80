//! The goals of branches and globals over databases.

use anyhow::Result;

use super::database::Statement;
use super::{Product, ProductOptions, WorkMethod};
use crate::goal::Goal;
use crate::report::Row;

const CLIENTS: [usize; 3] = [1, 8, 32];

/// How many times slower than a plain local transaction a branch alone may be, with 1, 8 and 32
/// clients.
const BRANCH: [(Product, Statement, [f64; 3]); 5] = [
    (Product::Mysql, Statement::Point, [1.1, 1.35, 1.35]),
    (Product::Mysql, Statement::General, [1.3, 1.7, 1.8]),
    (Product::Postgres, Statement::Point, [1.05, 1.25, 1.5]),
    (Product::Postgres, Statement::General, [1.2, 1.5, 1.8]),
    (Product::Sqlite, Statement::Point, [1.5, 1.5, 1.5]),
];

/// The same for a whole global whose last branch decides.
const GLOBAL: [(Product, [f64; 3]); 3] = [
    (Product::Mysql, [2.2, 2.2, 2.0]),
    (Product::Postgres, [2.2, 2.2, 2.0]),
    (Product::Sqlite, [2.0, 2.0, 2.0]),
];
/// The same for a checked local transaction, with any number of clients.
const CHECKED: f64 = 1.5;

impl ProductOptions<'_> {
    /// Measures the rows of a product, and adds their goals.
    pub(crate) async fn goals(&self, product: Product) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        for (_, statement, wanted) in BRANCH.iter().filter(|(of, ..)| *of == product) {
            for (clients, wanted) in CLIENTS.into_iter().zip(wanted) {
                rows.extend(self.goals_of(product, *statement, clients, *wanted).await?);
            }
        }
        Ok(rows)
    }

    async fn goals_of(
        &self,
        product: Product,
        statement: Statement,
        clients: usize,
        wanted: f64,
    ) -> Result<Vec<Row>> {
        let ways = match statement {
            Statement::Point => &WorkMethod::ALL[..],
            Statement::General | Statement::Child => &[WorkMethod::Local, WorkMethod::Branch],
        };
        let mut rows = self.ways(product, ways, statement, &[clients]).await?;
        let local = rows.first().map_or(f64::NAN, |row| row.per_second.median);
        let bound = format!("plain local: {local:.0}/s");
        let ratio = |row: &Row| row.figure("plain local / this").unwrap_or(f64::NAN);
        for row in &mut rows {
            let way = ways.iter().find(|way| row.name.ends_with(way.name()));
            let wanted = match way {
                Some(WorkMethod::BranchAlone) => Some(wanted),
                Some(WorkMethod::Branch) if statement != Statement::Point => Some(wanted),
                Some(WorkMethod::GlobalLastAlone) => global(product, clients),
                Some(WorkMethod::Checked) => Some(CHECKED),
                _ => None,
            };
            let goal =
                |wanted| Goal::at_most("plain local / this", wanted, ratio(row), bound.clone());
            row.goals = wanted.map(goal).into_iter().collect();
        }
        Ok(rows)
    }

    /// Measures hot rows, and adds the goals of the queue: its bound, and both ways of polling.
    pub(crate) async fn hot_goals(&self, product: Product, clients: usize) -> Result<Vec<Row>> {
        let mut rows = self.hot(product, &[clients]).await?;
        for row in rows.iter_mut().filter(|row| row.figure(HELD).is_some()) {
            row.goals = hot_goals(row);
        }
        Ok(rows)
    }
}

/// Only the queue's rows have it.
const HELD: &str = "share of 1 / hold time";

fn hot_goals(row: &Row) -> Vec<Goal> {
    let figure = |name| row.figure(name).unwrap_or(f64::NAN);
    let goal = |what, wanted| Goal::at_least(what, wanted, figure(what), "in turns");
    let beside = |holding, rolled_back| {
        [goal("times polling, holding", holding), goal("times polling, rolled back", rolled_back)]
    };
    if row.name.contains("opposite order") {
        return beside(5.0, 5.0).into();
    }
    let alone = [goal(HELD, 0.8), goal("slowest client, share of the mean", 0.8)];
    if row.name.contains("another branch") {
        return alone.into_iter().chain(beside(10.0, 1.3)).collect();
    }
    alone.into()
}

fn global(product: Product, clients: usize) -> Option<f64> {
    let (_, wanted) = GLOBAL.iter().find(|(of, _)| *of == product)?;
    CLIENTS.iter().position(|number| *number == clients).map(|at| wanted[at])
}
