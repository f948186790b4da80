//! A DELETE in WITH of rows to which foreign keys with an action refer. Its rows are read and
//! locked before the statement, and no other row may go along with them.

use super::super::{ForeignKey, StatementRefusal, Table, TableKind};
use super::imaged::{ALONE, Imaged};
use super::part::{Part, refused};

/// Refuses such a DELETE if its rows are not known without the rest of the statement, or if the
/// statement may write rows that go along with them.
pub(super) fn check(writes: &[Imaged<'_>], parts: &[Part]) -> Result<(), StatementRefusal> {
    for delete in writes.iter().filter(|write| write.part.before.is_some()) {
        let part = &parts[delete.place];
        if parts.iter().any(|other| part.may_read(other)) {
            return Err(refused(ALONE));
        }
        let others = || writes.iter().filter(|write| write.number != delete.number);
        let mut keys = delete.table.acting_on_delete();
        if keys.any(|key| others().any(|other| may_refer(key, delete.table, other.table))) {
            return Err(refused(
                "a foreign key deletes or changes rows of a table along with what it deletes, and \
                 it writes that table, too; execute each as a statement of its own",
            ));
        }
    }
    Ok(())
}

/// Returns whether rows of a table that is written may refer by a key to rows of `deleted`. A
/// partition and the whole have rows in common.
fn may_refer(key: &ForeignKey, deleted: &Table, written: &Table) -> bool {
    let from = &key.referring;
    let is_written =
        |schema: &String, name: &String| (schema, name) == (&written.schema, &written.name);
    from.partitioned
        || written.kind == TableKind::Partitioned
        || is_written(&from.schema, &from.table)
        || from.own && is_written(&deleted.schema, &deleted.name)
}
