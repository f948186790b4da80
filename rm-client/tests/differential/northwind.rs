//! A published schema with its real rows: products, customers, orders and their lines, the same as
//! in the order example.

use handfast_rm_core::plan::Dialect;

use crate::schema::Schema;
use crate::statement::{Kind, Statement};
use crate::table::{Class, Column, Role, Table};

const PRODUCTS: &str = include_str!("../../../examples/shop/data/northwind/products.csv");
const CUSTOMERS: &str = include_str!("../../../examples/shop/data/northwind/customers.csv");
const LINES: &str = include_str!("../../../examples/shop/data/northwind/order-lines.csv");

/// How many order lines are used: enough to choose from, few enough to compare every time.
const LINES_MAX: usize = 40;

/// Returns the tables, parents before their children.
pub(crate) fn schema(dialect: Dialect, prefix: &str) -> Schema {
    let [products, customers, orders, lines] =
        ["products", "customers", "orders", "order_lines"].map(|name| format!("{prefix}_{name}"));
    let references = [
        format!("FOREIGN KEY (customer_id) REFERENCES {customers} (customer_id)"),
        format!("FOREIGN KEY (order_id) REFERENCES {orders} (order_id)"),
        format!("FOREIGN KEY (product_id) REFERENCES {products} (product_id)"),
    ];
    let [to_customer, to_order, to_product] = references;
    let tables = vec![
        table(
            products,
            &[0],
            vec![
                whole(dialect, "product_id", "NOT NULL", 1..=12),
                text("name", "varchar(60)", &["Chai", "Chang", "Aniseed Syrup"]),
                whole(dialect, "stock", "NOT NULL", 0..=60),
                money("unit_price"),
            ],
            vec![],
        ),
        table(
            customers,
            &[0],
            vec![
                text("customer_id", "varchar(5)", &["ALFKI", "ANATR", "VINET", "HANAR"]),
                text("name", "varchar(60)", &["Alfreds Futterkiste", "Hanari Carnes"]),
                text("country", "varchar(20)", &["Germany", "Brazil", "Mexico"]),
            ],
            vec![],
        ),
        table(
            orders,
            &[0],
            vec![
                whole(dialect, "order_id", "NOT NULL", 10_248..=10_260),
                text("customer_id", "varchar(5)", &["ALFKI", "VINET", "HANAR", "XXXXX"]),
                text("order_date", "date", &["1996-07-04", "1997-01-31"]),
            ],
            vec![to_customer],
        ),
        table(
            lines,
            &[0, 1],
            vec![
                whole(dialect, "order_id", "NOT NULL", 10_248..=10_260),
                whole(dialect, "product_id", "NOT NULL", 1..=12),
                whole(dialect, "quantity", "NOT NULL", 1..=50),
                money("unit_price"),
                text("discount", "varchar(5)", &["0.0", "0.15"]),
            ],
            vec![to_order, to_product],
        ),
    ];
    let unwritable = [format!("{prefix}_bare"), format!("{prefix}_view")];
    Schema { dialect, tables, unwritable }
}

/// Returns the statements that insert the published rows.
pub(crate) fn rows(schema: &Schema) -> Vec<Statement> {
    let [products, customers, orders, lines] = schema.tables.as_slice() else {
        unreachable!("the schema has four tables")
    };
    let all_lines: Vec<Vec<&'static str>> = cells(LINES).take(LINES_MAX).collect();
    let mut headers: Vec<Vec<&'static str>> =
        all_lines.iter().map(|line| line[..3].to_vec()).collect();
    headers.dedup();
    let line_of = |line: &Vec<&'static str>| vec![line[0], line[3], line[4], line[5], line[6]];
    let lines_of: Vec<Vec<&'static str>> = all_lines.iter().map(line_of).collect();
    vec![
        insert(products, cells(PRODUCTS)),
        insert(customers, cells(CUSTOMERS)),
        insert(orders, headers),
        insert(lines, lines_of),
    ]
}

/// Returns the cells of a file without its header. No cell contains a comma or a line break.
fn cells(file: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    file.lines().skip(1).map(|line| line.split(',').collect())
}

fn insert(table: &Table, rows: impl IntoIterator<Item = Vec<&'static str>>) -> Statement {
    let quoted = |cell: &str| format!("'{}'", cell.replace('\'', "''"));
    let row = |cells: Vec<&str>| {
        format!("({})", cells.into_iter().map(quoted).collect::<Vec<_>>().join(", "))
    };
    let rows: Vec<String> = rows.into_iter().map(row).collect();
    let sql = format!("INSERT INTO {} VALUES {}", table.name, rows.join(", "));
    Statement { kind: Kind::Insert, sql, plain_sql: None, arguments: Vec::new() }
}

fn table(name: String, key: &[usize], columns: Vec<Column>, references: Vec<String>) -> Table {
    Table {
        name,
        columns,
        key: key.to_vec(),
        unique: Vec::new(),
        references,
        stands_in: false,
        keyless: false,
        tail: String::new(),
        further: Vec::new(),
        removal: Vec::new(),
    }
}

fn whole(
    dialect: Dialect,
    name: &str,
    constraints: &str,
    values: std::ops::RangeInclusive<i64>,
) -> Column {
    let type_text = if dialect == Dialect::Sqlite { "INTEGER" } else { "bigint" };
    let values = values.map(|number| number.to_string()).collect();
    column(name, type_text, constraints, values, Class::Whole)
}

fn money(name: &str) -> Column {
    let values = ["14.00", "9.80", "0.01"].map(str::to_owned).to_vec();
    column(name, "decimal(10,2)", "NOT NULL", values, Class::Plain)
}

fn text(name: &str, type_text: &str, values: &[&str]) -> Column {
    let values = values.iter().map(|value| format!("'{value}'")).collect();
    let class = if type_text == "date" { Class::Plain } else { Class::Text };
    column(name, type_text, "NOT NULL", values, class)
}

fn column(
    name: &str,
    type_text: &str,
    constraints: &str,
    values: Vec<String>,
    class: Class,
) -> Column {
    Column {
        name: name.to_owned(),
        type_text: type_text.to_owned(),
        constraints: constraints.to_owned(),
        values,
        class,
        role: Role::Given,
    }
}
