//! Triggers, and whether they write anything but the row that they fire for.

mod body;
mod expression;

use self::body::BodyReader;
use super::{Column, Dialect, Table};

/// The rows that a trigger writes, as far as that is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum TriggerWrites {
    /// Any: its body does what is not known here, or is not shown.
    #[default]
    Unknown,
    /// Only its own row: the application vouches for it.
    Vouched,
    /// Only its own row: its body shows it.
    Shown {
        /// The columns that it fills in, as its body spells them.
        fills: Vec<String>,
        /// Whether it may refuse the row.
        refuses: bool,
    },
}

impl TriggerWrites {
    /// A trigger that fills in columns of its own row.
    pub fn filling(fills: Vec<String>) -> Self {
        Self::Shown { fills, refuses: false }
    }

    /// Returns whether it may change its row.
    pub(super) fn fills(&self) -> bool {
        match self {
            Self::Vouched => true,
            Self::Shown { fills, .. } => !fills.is_empty(),
            Self::Unknown => false,
        }
    }

    /// Returns whether its body shows that it fills in a column.
    pub(super) fn shows(&self, column: &str) -> bool {
        match self {
            Self::Shown { fills, .. } => fills.iter().any(|name| name.eq_ignore_ascii_case(column)),
            Self::Unknown | Self::Vouched => false,
        }
    }

    /// Returns whether it writes nothing but its row, and of that no column by which rows are named
    /// or refer to each other. The row id of SQLite is no column, and names the row.
    pub(super) fn are_seen(&self, table: &Table) -> bool {
        match self {
            Self::Unknown => false,
            Self::Vouched => true,
            Self::Shown { fills, .. } => !fills.iter().any(|name| links(table, name)),
        }
    }
}

/// Whether rows are named by a column, or refer to each other by it.
fn links(table: &Table, name: &str) -> bool {
    let keys = [&table.key.columns]
        .into_iter()
        .chain(table.references.iter().map(|key| &key.columns))
        .chain(table.referenced_by.iter().flat_map(|key| [&key.referenced, &key.own_columns]));
    let is_it = |column: &Column| column.name.eq_ignore_ascii_case(name);
    !table.columns.iter().any(is_it) || keys.flatten().any(|column| is_it(&table.columns[*column]))
}

/// The body of a trigger.
#[derive(Clone, Copy, Debug)]
pub struct TriggerBody<'b> {
    /// PostgreSQL: the source of its function in PL/pgSQL; MySQL: its statement; SQLite: the
    /// `CREATE TRIGGER` statement.
    pub text: &'b str,
    /// PostgreSQL: the condition behind WHEN.
    pub condition: Option<&'b str>,
    /// The row that its function returns for the row to be written as it is; none where that does
    /// not matter (PostgreSQL, after the row is written).
    pub returns: Option<Returns>,
    /// SQLite: the table that it hangs on.
    pub table: &'b str,
    /// SQLite: columns that together name a row of the table: those of a key, and each name of the
    /// row id.
    pub row_names: &'b [Vec<&'b str>],
}

/// The row that the function of a trigger returns before the row is written. It takes the row's
/// place, and NULL keeps the row from being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// NEW, for INSERT and UPDATE.
    New,
    /// OLD, for DELETE.
    Old,
    /// One or the other, by the event.
    Either,
}

impl TriggerBody<'_> {
    /// Returns which rows the trigger writes.
    pub fn writes(&self, dialect: Dialect) -> TriggerWrites {
        BodyReader::new(dialect, self).read()
    }
}

#[cfg(test)]
mod tests {
    use super::{Dialect, Returns, TriggerBody, TriggerWrites};

    const BODY: TriggerBody<'static> = TriggerBody {
        text: "",
        condition: None,
        returns: Some(Returns::New),
        table: "",
        row_names: &[],
    };

    fn shown(fills: &[&str], refuses: bool) -> TriggerWrites {
        TriggerWrites::Shown { fills: fills.iter().map(|&name| name.to_owned()).collect(), refuses }
    }

    fn plpgsql(text: &str) -> TriggerWrites {
        TriggerBody { text, ..BODY }.writes(Dialect::Postgres)
    }

    fn mysql(text: &str) -> TriggerWrites {
        TriggerBody { text, ..BODY }.writes(Dialect::MySql)
    }

    fn sqlite(text: &str) -> TriggerWrites {
        let row_names = [vec!["rowid"], vec!["a", "b"]];
        TriggerBody { text, table: "t", row_names: &row_names, ..BODY }.writes(Dialect::Sqlite)
    }

    #[test]
    fn a_body_that_fills_in_its_row_shows_the_columns() {
        assert_eq!(
            plpgsql(
                "\nBEGIN -- at each change\n NEW.changed = now() AT TIME ZONE 'UTC';\n \
                 NEW.version := OLD.version + 1; RETURN NEW;\nEND;\n"
            ),
            shown(&["changed", "version"], false)
        );
        assert_eq!(
            plpgsql(
                "BEGIN IF (NEW IS DISTINCT FROM OLD AND NEW.u IS NOT DISTINCT FROM OLD.u) THEN \
                 NEW.u := current_timestamp; ELSIF TG_OP = 'INSERT' THEN NULL; ELSE \
                 NEW.s = lower(NEW.name) || '-' || NEW.id::text; END IF; RETURN NEW; END"
            ),
            shown(&["u", "s"], false)
        );
        assert_eq!(mysql("SET NEW.`at` = NOW()"), shown(&["at"], false));
        assert_eq!(
            mysql(
                "BEGIN IF NEW.a IS NULL THEN SET NEW.a = UUID(), NEW.b = 1; END IF; \
                 SET NEW.c = IFNULL(NEW.c, CURDATE()); END"
            ),
            shown(&["a", "b", "c"], false)
        );
        let touch = "CREATE TRIGGER touch AFTER UPDATE ON t BEGIN \
                     UPDATE t SET at = CURRENT_TIMESTAMP WHERE rowid = new.rowid; END";
        assert_eq!(sqlite(touch), shown(&["at"], false));
        let by_key = "CREATE TRIGGER touch AFTER UPDATE OF v ON \"t\" FOR EACH ROW \
                      WHEN NEW.at = OLD.at BEGIN UPDATE T SET at = datetime('now', 'utc') \
                      WHERE t.b = OLD.b AND NEW.a = a AND c > 1; END";
        assert_eq!(sqlite(by_key), shown(&["at"], false));
    }

    #[test]
    fn a_body_that_checks_its_row_may_refuse_it() {
        let text = "BEGIN IF NEW.v < 0 THEN RAISE EXCEPTION 'v is %', NEW.v USING ERRCODE = \
                    '23514'; END IF; RAISE NOTICE 'checked'; RETURN NEW; END";
        assert_eq!(plpgsql(text), shown(&[], true));
        assert_eq!(plpgsql("BEGIN RAISE NOTICE 'seen'; RETURN NEW; END"), shown(&[], false));
        let text = "IF NEW.v < 0 THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'v'; END IF";
        assert_eq!(mysql(text), shown(&[], true));
        let text = "CREATE TRIGGER c AFTER INSERT ON t WHEN NEW.v < 0 BEGIN \
                    SELECT RAISE(ABORT, 'v'); END";
        assert_eq!(sqlite(text), shown(&[], true));
        let text = "CREATE TRIGGER c AFTER INSERT ON t WHEN CASE WHEN NEW.v THEN RAISE(ABORT, 'v') \
                    END BEGIN SELECT 1; END";
        assert_eq!(sqlite(text), shown(&[], true));
    }

    #[test]
    fn a_row_that_is_not_written_is_not_shown() {
        assert_eq!(plpgsql("BEGIN RETURN NULL; END"), TriggerWrites::Unknown);
        assert_eq!(plpgsql("BEGIN RETURN OLD; END"), TriggerWrites::Unknown);
        for (text, returns, is_shown) in [
            ("BEGIN RETURN NULL; END", None, true),
            ("BEGIN RETURN audit(NEW); END", None, false),
            ("BEGIN RETURN OLD; END", Some(Returns::Old), true),
            ("BEGIN RETURN NULL; END", Some(Returns::Old), false),
            // The INSERT that undoes the DELETE would be kept out.
            ("BEGIN RETURN OLD; END", Some(Returns::Either), false),
        ] {
            let writes = TriggerBody { text, returns, ..BODY }.writes(Dialect::Postgres);
            let expected = if is_shown { shown(&[], false) } else { TriggerWrites::Unknown };
            assert_eq!(writes, expected, "{text} {returns:?}");
        }
    }

    #[test]
    fn a_condition_may_call_what_a_body_may() {
        for (condition, is_shown) in [
            ("old.v IS DISTINCT FROM lower(new.v)", true),
            ("audit(new.id)", false),
            ("new.v ## 1 > 0", false),
            ("new.v > 0) AND (audit(1)", false),
        ] {
            let body =
                TriggerBody { text: "BEGIN RETURN NEW; END", condition: Some(condition), ..BODY };
            let expected = if is_shown { shown(&[], false) } else { TriggerWrites::Unknown };
            assert_eq!(body.writes(Dialect::Postgres), expected, "{condition}");
        }
    }

    #[test]
    fn what_is_not_known_is_unknown() {
        for text in [
            "BEGIN INSERT INTO log VALUES (NEW.id); RETURN NEW; END",
            "BEGIN NEW.v = next_version(NEW.id); RETURN NEW; END",
            "BEGIN NEW.v = app.lower(NEW.id); RETURN NEW; END",
            "BEGIN NEW.v = ifnull(NEW.id, 1); RETURN NEW; END",
            "BEGIN NEW.v = NEW.v ## 1; RETURN NEW; END",
            "BEGIN NEW.v = (SELECT max(v) FROM t); RETURN NEW; END",
            "BEGIN NEW.v = NEW.w::own_type; RETURN NEW; END",
            "BEGIN IF audit(NEW.id) THEN NEW.v = 1; END IF; RETURN NEW; END",
            "BEGIN OLD.v = 1; RETURN NEW; END",
            "BEGIN NEW.v[1] = 1; RETURN NEW; END",
            "BEGIN RAISE EXCEPTION 'no: %', audit(NEW.id); END",
            "BEGIN RETURN audit(NEW); END",
            "BEGIN PERFORM pg_notify('c', ''); RETURN NEW; END",
            "DECLARE n int; BEGIN n = 1; NEW.v = n; RETURN NEW; END",
            "BEGIN NEW.v = 1; EXCEPTION WHEN others THEN NEW.v = 2; RETURN NEW; END",
        ] {
            assert_eq!(plpgsql(text), TriggerWrites::Unknown, "{text}");
        }
        for text in [
            "INSERT INTO log VALUES (NEW.id)",
            "SET @seen = NEW.id",
            "SET NEW.v = @seen",
            "SET NEW.v = split_part(NEW.w, ',', 1)",
            "SET NEW.v = 1, @seen = 2",
            "BEGIN SET NEW.v = 1; CALL audit(NEW.id); END",
            "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = audit(NEW.id)",
        ] {
            assert_eq!(mysql(text), TriggerWrites::Unknown, "{text}");
        }
        for text in [
            "CREATE TRIGGER x BEFORE UPDATE ON t BEGIN UPDATE t SET v = 1 WHERE rowid = new.rowid; END",
            "CREATE TRIGGER after UPDATE ON t BEGIN UPDATE t SET v = 1 WHERE rowid = new.rowid; END",
            "CREATE TRIGGER x UPDATE OF after ON t BEGIN \
             UPDATE t SET v = 1 WHERE rowid = new.rowid; END",
            "CREATE TRIGGER x BEFORE INSERT ON t WHEN new.after IS NULL BEGIN \
             UPDATE t SET v = 1 WHERE rowid = new.rowid; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN UPDATE u SET v = 1 WHERE rowid = new.rowid; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN UPDATE t SET v = 1 WHERE a = NEW.a; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN UPDATE t SET v = 1 WHERE a = NEW.a OR b = NEW.b; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN UPDATE t SET v = 1 WHERE rowid = NEW.a; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN UPDATE t SET v = 1; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN DELETE FROM t WHERE rowid = NEW.rowid; END",
            "CREATE TRIGGER x AFTER UPDATE ON t BEGIN \
             UPDATE OR IGNORE t SET v = 1 WHERE rowid = NEW.rowid; END",
        ] {
            assert_eq!(sqlite(text), TriggerWrites::Unknown, "{text}");
        }
    }
}
