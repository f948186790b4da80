//! The files that a run starts from: products, customers, orders.

use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};

use crate::cli::Options;

const OWN_PRODUCTS: &[u8] = include_bytes!("../data/products.csv");
const OWN_CUSTOMERS: &[u8] = include_bytes!("../data/customers.csv");
const OWN_ORDER_LINES: &[u8] = include_bytes!("../data/order-lines.csv");

/// Everything that a run starts from.
#[derive(Debug, Clone)]
pub struct Input {
    /// The stock.
    pub products: Vec<Product>,
    /// The customers, each with an account.
    pub customers: Vec<Customer>,
    /// By order id.
    pub orders: Vec<Order>,
}

/// A product and the units on hand.
#[derive(Debug, Clone, Deserialize)]
pub struct Product {
    /// Its key.
    pub product_id: i64,
    /// For people.
    pub name: String,
    /// Units on hand.
    #[serde(rename = "stock")]
    pub units: i64,
}

/// A customer with an account.
#[derive(Debug, Clone, Deserialize)]
pub struct Customer {
    /// The key.
    pub customer_id: String,
    /// For people.
    pub name: String,
}

/// An order as a customer places it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Order {
    /// Its key.
    pub order_id: i64,
    /// The customer that pays.
    pub customer_id: String,
    /// As in the file.
    pub order_date: String,
    /// As in the file, which is by product id: two orders that share products meet them in the same
    /// order, so that they seldom deadlock.
    pub lines: Vec<OrderLine>,
}

/// A line of an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct OrderLine {
    /// The product.
    pub product_id: i64,
    /// The number of units.
    pub quantity: i64,
    /// The price of one unit.
    pub unit_price_cents: i64,
}

/// A row of the file of order lines.
#[derive(Debug, Deserialize)]
struct LineRow {
    order_id: i64,
    customer_id: String,
    order_date: String,
    product_id: i64,
    quantity: i64,
    #[serde(rename = "unit_price", deserialize_with = "cents")]
    unit_price_cents: i64,
}

impl Order {
    /// Returns the amount that the customer owes. Discounts are ignored.
    pub fn total_cents(&self) -> i64 {
        self.lines.iter().map(|line| line.quantity * line.unit_price_cents).sum()
    }
}

impl Input {
    /// Reads the files named on the command line, or the examples' own, and restocks.
    pub(crate) fn read(options: &Options) -> Result<Self> {
        let mut input = match (&options.products, &options.customers, &options.orders) {
            (Some(products), Some(customers), Some(orders)) => Self {
                products: read_rows(open(products)?).with_context(|| name_of(products))?,
                customers: read_rows(open(customers)?).with_context(|| name_of(customers))?,
                orders: read_orders(open(orders)?).with_context(|| name_of(orders))?,
            },
            _ => Self::own()?,
        };
        for product in &mut input.products {
            product.units *= i64::from(options.restock);
        }
        input.orders = rounds(input.orders, options.rounds);
        Ok(input)
    }

    fn own() -> Result<Self> {
        Ok(Self {
            products: read_rows(OWN_PRODUCTS)?,
            customers: read_rows(OWN_CUSTOMERS)?,
            orders: read_orders(OWN_ORDER_LINES)?,
        })
    }
}

/// The orders again and again. Their numbers go on where those of the round before end.
fn rounds(orders: Vec<Order>, rounds: u16) -> Vec<Order> {
    let step = orders.last().map_or(0, |last| last.order_id);
    let round = |round: u16| {
        let renumbered = move |order: &Order| Order {
            order_id: order.order_id + step * i64::from(round),
            ..order.clone()
        };
        orders.iter().map(renumbered)
    };
    (0..rounds).flat_map(round).collect()
}

fn open(path: &std::path::Path) -> Result<File> {
    File::open(path).with_context(|| name_of(path))
}

fn name_of(path: &std::path::Path) -> String {
    path.display().to_string()
}

fn read_rows<Row: DeserializeOwned>(source: impl Read) -> Result<Vec<Row>> {
    Ok(csv::Reader::from_reader(source).into_deserialize().collect::<csv::Result<_>>()?)
}

/// Gathers the lines of each order and sorts the orders by id.
fn read_orders(source: impl Read) -> Result<Vec<Order>> {
    let mut orders: Vec<Order> = Vec::new();
    for row in read_rows::<LineRow>(source)? {
        if row.quantity <= 0 {
            bail!("order {}: a quantity of {}", row.order_id, row.quantity);
        }
        let LineRow { order_id, customer_id, order_date, product_id, quantity, .. } = row;
        let line = OrderLine { product_id, quantity, unit_price_cents: row.unit_price_cents };
        match orders.last_mut().filter(|order| order.order_id == order_id) {
            Some(order) => order.lines.push(line),
            None => orders.push(Order { order_id, customer_id, order_date, lines: vec![line] }),
        }
    }
    orders.sort_by_key(|order| order.order_id);
    if let Some(twice) = orders.windows(2).find(|pair| pair[0].order_id == pair[1].order_id) {
        bail!("the lines of order {} do not stand together", twice[0].order_id);
    }
    Ok(orders)
}

/// Reads an amount such as `14.00` without going through a binary fraction.
fn cents<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    let text = String::deserialize(deserializer)?;
    cents_of(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is not an amount")))
}

fn cents_of(text: &str) -> Option<i64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || fraction.len() > 2 || !digits(whole) || !digits(fraction) {
        return None;
    }
    format!("{whole}{fraction:0<2}").parse().ok()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn amounts_are_read_exactly() {
        let table = [("14.00", 1400), ("9.8", 980), ("0.07", 7), ("21", 2100)];
        for (text, expected) in table {
            assert_eq!(cents_of(text), Some(expected), "{text}");
        }
        for text in ["", ".5", "1.234", "-1.00", "1e3", "+1"] {
            assert_eq!(cents_of(text), None, "{text}");
        }
    }

    #[test]
    fn rounds_have_numbers_of_their_own() {
        let orders = Input::own().unwrap().orders;
        let thrice = rounds(orders.clone(), 3);
        let ids: std::collections::BTreeSet<i64> = thrice.iter().map(|it| it.order_id).collect();
        assert_eq!((thrice.len(), ids.len()), (3 * orders.len(), 3 * orders.len()));
    }

    #[test]
    fn scattered_lines_are_refused() {
        let header = "order_id,customer_id,order_date,product_id,quantity,unit_price,discount\n";
        let file = format!("{header}1,A,d,7,1,1.00,0\n2,A,d,7,1,1.00,0\n1,A,d,8,1,1.00,0\n");
        let error = read_orders(file.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, "the lines of order 1 do not stand together");
    }

    /// Computes the result of the orders one after the other, without any transaction.
    #[test]
    fn the_northwind_orders_have_one_outcome() {
        let mut products: Vec<Product> =
            read_rows(&include_bytes!("../data/northwind/products.csv")[..]).unwrap();
        products.iter_mut().for_each(|product| product.units *= 20);
        let customers: Vec<Customer> =
            read_rows(&include_bytes!("../data/northwind/customers.csv")[..]).unwrap();
        let orders = read_orders(&include_bytes!("../data/northwind/order-lines.csv")[..]).unwrap();
        assert_eq!((products.len(), customers.len(), orders.len()), (77, 93, 830));

        let outcome = reference(&Input { products, customers, orders }, 1_000_000);
        let expected = Reference {
            committed: 430,
            out_of_stock: 333,
            no_funds: 67,
            revenue_cents: 40_998_639,
            stock_left: 43_897,
        };
        assert_eq!(outcome, expected);
    }

    #[test]
    fn the_own_orders_meet_every_outcome() {
        let outcome = reference(&Input::own().unwrap(), 1_000_000);
        assert_eq!((outcome.committed, outcome.out_of_stock, outcome.no_funds), (38, 49, 33));
    }

    #[derive(Debug, Default, PartialEq, Eq)]
    struct Reference {
        committed: u32,
        out_of_stock: u32,
        no_funds: u32,
        revenue_cents: i64,
        stock_left: i64,
    }

    fn reference(input: &Input, balance_cents: i64) -> Reference {
        let mut units: HashMap<i64, i64> =
            input.products.iter().map(|product| (product.product_id, product.units)).collect();
        let mut balances: HashMap<&str, i64> = input
            .customers
            .iter()
            .map(|customer| (customer.customer_id.as_str(), balance_cents))
            .collect();
        let mut outcome = Reference::default();
        for order in &input.orders {
            let total = order.total_cents();
            let balance = balances.get_mut(order.customer_id.as_str()).unwrap();
            if order.lines.iter().any(|line| units[&line.product_id] < line.quantity) {
                outcome.out_of_stock += 1;
            } else if *balance < total {
                outcome.no_funds += 1;
            } else {
                *balance -= total;
                for line in &order.lines {
                    *units.get_mut(&line.product_id).unwrap() -= line.quantity;
                }
                outcome.committed += 1;
                outcome.revenue_cents += total;
            }
        }
        outcome.stock_left = units.values().sum();
        outcome
    }
}
