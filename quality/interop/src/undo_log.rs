//! The statements that make the client's own table, as Seata's documentation has them.

/// The table on MySQL and MariaDB.
pub const MYSQL: &str = "create table undo_log (branch_id bigint not null, \
    xid varchar(128) not null, context varchar(128) not null, rollback_info longblob not null, \
    log_status int not null, log_created datetime(6) not null, \
    log_modified datetime(6) not null, unique key ux_undo_log (xid, branch_id))";

/// The table on PostgreSQL.
pub const POSTGRES: &str = "create table undo_log (id serial not null primary key, \
    branch_id bigint not null, xid varchar(128) not null, context varchar(128) not null, \
    rollback_info bytea not null, log_status int not null, log_created timestamp(0) not null, \
    log_modified timestamp(0) not null, constraint ux_undo_log unique (xid, branch_id))";

/// The sequence on PostgreSQL, after the table.
pub const POSTGRES_SEQUENCE: &str =
    "create sequence if not exists undo_log_id_seq increment by 1 minvalue 1";
