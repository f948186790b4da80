//! Lists as tables. An id stays whole, so that it can be copied and searched for; where the
//! terminal is too narrow for all columns, those that matter least are left out.

use super::{Style, printable, ruled};

/// The least width of a column whose text may go on in the next line.
const FLOWING_MIN: usize = 14;

/// A column of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct SheetColumn {
    header: &'static str,
    flows: bool,
    /// The columns with the lowest rank are left out first.
    rank: Option<u8>,
}

/// Returns a column whose texts are never broken.
pub(super) const fn whole(header: &'static str) -> SheetColumn {
    SheetColumn { header, flows: false, rank: None }
}

/// Returns a column whose texts may go on in the next line.
pub(super) const fn flowing(header: &'static str) -> SheetColumn {
    SheetColumn { header, flows: true, rank: None }
}

impl SheetColumn {
    /// Lets the column be left out, after those with a lower rank.
    pub(super) const fn left_out(self, rank: u8) -> Self {
        Self { rank: Some(rank), ..self }
    }
}

/// A list that is being filled.
#[derive(Debug)]
pub(super) struct Sheet<const N: usize> {
    style: Style,
    columns: [SheetColumn; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Sheet<N> {
    pub(super) fn new(style: Style, columns: [SheetColumn; N]) -> Self {
        Self { style, columns, rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: [&str; N]) {
        self.rows.push(cells.map(printable));
    }

    /// Adds a row whose last cell has one item a line, or all in one for a program.
    pub(super) fn row_with_list(&mut self, cells: [&str; N], items: &[String]) {
        let mut cells = cells.map(printable);
        let items: Vec<String> = items.iter().map(|item| printable(item)).collect();
        let between = if self.style == Style::Plain { " " } else { "\n" };
        if let Some(last) = cells.last_mut() {
            *last = items.join(between);
        }
        self.rows.push(cells);
    }

    /// Returns the table, and in a line below it which columns were left out.
    pub(super) fn text(&self) -> String {
        let shown = self.shown();
        let mut table = ruled(self.style, shown.iter().map(|at| self.columns[*at].header));
        let fits = |width: usize| self.least_width(&shown) <= width;
        if let Style::Terminal { width } = self.style
            && fits(width.into())
        {
            for (place, at) in shown.iter().enumerate() {
                if !self.columns[*at].flows
                    && let Some(column) = table.column_mut(place)
                {
                    column.set_constraint(comfy_table::ColumnConstraint::ContentWidth);
                }
            }
        } else {
            // A line that is too long is broken by the terminal, which copies it whole.
            table.set_content_arrangement(comfy_table::ContentArrangement::Disabled);
        }
        for row in &self.rows {
            table.add_row(shown.iter().map(|at| &row[*at]));
        }
        let hidden: Vec<&str> =
            (0..N).filter(|at| !shown.contains(at)).map(|at| self.columns[at].header).collect();
        let hidden = match hidden.as_slice() {
            [] => String::new(),
            hidden => format!("\n-o wide shows {}", hidden.join(", ")),
        };
        format!("{}{hidden}", super::text(&table))
    }

    /// Returns the columns that are shown: all, unless the terminal is too narrow for them.
    fn shown(&self) -> Vec<usize> {
        let mut shown: Vec<usize> = (0..N).collect();
        let Style::Terminal { width } = self.style else { return shown };
        let mut hidden = Vec::new();
        while self.least_width(&shown) > width.into() {
            let ranked = shown.iter().filter_map(|at| Some((self.columns[*at].rank?, *at)));
            let Some((_, least)) = ranked.min() else { break };
            shown.retain(|at| *at != least);
            hidden.push(least);
        }
        // A wide column that went last may have made room for narrow ones that went before it.
        for at in hidden.into_iter().rev() {
            let place = shown.partition_point(|it| *it < at);
            shown.insert(place, at);
            if self.least_width(&shown) > width.into() {
                shown.remove(place);
            }
        }
        shown
    }

    /// Returns the width of a table of these columns with its borders, when all that may flow does.
    fn least_width(&self, shown: &[usize]) -> usize {
        let least = |at: &usize| {
            let column = &self.columns[*at];
            let content = self.rows.iter().flat_map(|row| row[*at].lines()).map(width_of).max();
            let content = content.unwrap_or_default().max(width_of(column.header));
            if column.flows { content.min(FLOWING_MIN) } else { content }
        };
        // Each column has a blank on both sides, and a line before it; one more ends the table.
        shown.iter().map(|at| least(at) + 3).sum::<usize>() + 1
    }
}

fn width_of(text: &str) -> usize {
    text.chars().count()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    fn sheet(style: Style) -> Sheet<4> {
        let columns = [
            whole("XID"),
            flowing("STATUS"),
            flowing("APPLICATION").left_out(2),
            flowing("AGE").left_out(1),
        ];
        let mut sheet = Sheet::new(style, columns);
        let xid = "127.0.0.1:15721:519082754010251313";
        sheet.row([xid, "rolled_back (timeout)", "order-service", "3 min"]);
        sheet
    }

    #[test]
    fn an_id_is_never_broken_and_columns_are_left_out_instead() {
        let xid = "127.0.0.1:15721:519082754010251313";
        for width in [20, 40, 58, 60, 70, 80, 120] {
            let text = sheet(Style::Terminal { width }).text();
            assert!(text.contains(xid), "{width}:\n{text}");
            let widest = text.lines().map(width_of).max().unwrap();
            assert!(width < 58 || widest <= width.into(), "{width}:\n{text}");
        }
        expect![[r"
            ┌──────────────────────────────────────────────────┐
            │ XID                                  STATUS      │
            ╞══════════════════════════════════════════════════╡
            │ 127.0.0.1:15721:519082754010251313   rolled_back │
            │                                      (timeout)   │
            └──────────────────────────────────────────────────┘
            -o wide shows APPLICATION, AGE"]]
        .assert_eq(&sheet(Style::Terminal { width: 61 }).text());
    }

    #[test]
    fn narrow_columns_come_back_when_a_wide_one_has_made_room() {
        let columns = [whole("BRANCH"), flowing("MODE").left_out(1), whole("RESOURCE").left_out(2)];
        let mut sheet = Sheet::new(Style::Terminal { width: 40 }, columns);
        sheet.row(["5932805314293268597", "at", "sqlite:bd18fc3d-0647-4560-8bbd"]);
        assert_eq!(sheet.shown(), [0, 1]);
    }

    #[test]
    fn all_columns_are_shown_where_nothing_limits_them() {
        for style in [Style::Wide, Style::Plain, Style::Terminal { width: 200 }] {
            let text = sheet(style).text();
            for shown in ["AGE", "3 min", "order-service", "rolled_back (timeout)"] {
                assert!(text.contains(shown), "{style:?}:\n{text}");
            }
            assert!(!text.contains("-o wide"), "{style:?}:\n{text}");
        }
    }

    #[test]
    fn a_list_has_one_item_a_line_or_one_line_for_a_program() {
        let items = ["sqlite:a".to_owned(), "sqlite:b\n".to_owned()];
        let text = |style| {
            let mut sheet = Sheet::new(style, [whole("PROCESS"), whole("RESOURCES")]);
            sheet.row_with_list(["p", ""], &items);
            sheet.text()
        };
        expect![[r"
            PROCESS  RESOURCES
            p        sqlite:a sqlite:b\n"]]
        .assert_eq(&text(Style::Plain));
        assert_eq!(text(Style::Wide).lines().count(), 6);
    }
}
