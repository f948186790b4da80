//! Tables that cannot be written in a branch as they are.

use futures::FutureExt;
use futures::future::LocalBoxFuture;
use handfast::AtResource;
use sqlx::Postgres;
use sqlx::postgres::PgPoolOptions;

use crate::advice::case::{Case, Setup};
use crate::advice::run::check;
use crate::at::{Stage, TestDatabase};

const SETUP: Setup = Setup {
    statements: &[
        "CREATE TABLE bare (id BIGINT, n INT)",
        "CREATE TABLE odd (id JSONB PRIMARY KEY, n INT)",
        "CREATE TABLE ruled (id BIGINT PRIMARY KEY, gone INT)",
        "CREATE RULE kept AS ON DELETE TO ruled DO INSTEAD \
         UPDATE ruled SET gone = 1 WHERE id = OLD.id",
        "CREATE TABLE private (id BIGINT PRIMARY KEY, n INT)",
        "ALTER TABLE private ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY everyone ON private USING (n > 0)",
        "CREATE TABLE checked (id BIGINT PRIMARY KEY, n INT)",
        "CREATE TABLE watched (id BIGINT PRIMARY KEY, n INT, stamp INT)",
        "CREATE TABLE heeded (id BIGINT PRIMARY KEY, n INT)",
        "CREATE TABLE guarded (id BIGINT PRIMARY KEY, n INT)",
        "CREATE TABLE filled (id BIGINT PRIMARY KEY, n INT, stamp INT)",
        "CREATE TABLE coded (id BIGINT PRIMARY KEY, n INT, code INT UNIQUE)",
        "INSERT INTO bare VALUES (1, 1), (2, 2)",
        "INSERT INTO odd VALUES ('1', 1), ('2', 2)",
        "INSERT INTO ruled VALUES (1, 0), (2, 0)",
        "INSERT INTO private VALUES (1, 1), (2, 2)",
        "INSERT INTO checked VALUES (1, -1), (2, 2)",
        "ALTER TABLE checked ADD CONSTRAINT positive CHECK (n > 0) NOT VALID",
        "INSERT INTO watched VALUES (1, 1, 2), (2, 2, 4)",
        "INSERT INTO filled VALUES (1, 1, 901), (2, 2, 902)",
        "INSERT INTO coded VALUES (1, 1, 1), (2, 2, 2)",
        "CREATE FUNCTION twice(n INT) RETURNS INT LANGUAGE sql AS 'SELECT n * 2'",
        "CREATE FUNCTION stamps() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN NEW.stamp = twice(NEW.n); RETURN NEW; END $$",
        "CREATE TRIGGER stamps BEFORE UPDATE ON watched FOR EACH ROW EXECUTE FUNCTION stamps()",
        "CREATE FUNCTION heeds() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN PERFORM twice(OLD.n); RETURN OLD; END $$",
        "CREATE TRIGGER heeds BEFORE DELETE ON heeded FOR EACH ROW EXECUTE FUNCTION heeds()",
        "CREATE FUNCTION guards() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN IF OLD.n < 0 THEN RAISE EXCEPTION 'kept'; END IF; RETURN OLD; END $$",
        "CREATE TRIGGER guards BEFORE DELETE ON guarded FOR EACH ROW EXECUTE FUNCTION guards()",
        "CREATE FUNCTION fills() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN NEW.stamp = 900 + NEW.n; RETURN NEW; END $$",
        "CREATE TRIGGER fills BEFORE UPDATE ON filled FOR EACH ROW EXECUTE FUNCTION fills()",
        "CREATE FUNCTION codes() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN NEW.code = NEW.n; RETURN NEW; END $$",
        "CREATE TRIGGER codes BEFORE INSERT ON coded FOR EACH ROW EXECUTE FUNCTION codes()",
    ],
    tables: &[
        ("bare", &["id", "n"]),
        ("odd", &["id", "n"]),
        ("ruled", &["id", "gone"]),
        ("private", &["id", "n"]),
        ("checked", &["id", "n"]),
        ("watched", &["id", "n", "stamp"]),
        ("heeded", &["id", "n"]),
        ("guarded", &["id", "n"]),
        ("filled", &["id", "n", "stamp"]),
        ("coded", &["id", "n", "code"]),
    ],
};

pub(super) const CASES: &[Case<Postgres>] = &[
    Case::new("NO-PRIMARY-KEY", "UPDATE bare SET n = 5 WHERE id = 1", "add one")
        .outside(&["ALTER TABLE bare ADD PRIMARY KEY (id)"])
        .again(),
    Case::new("KEY-COLLATION", "UPDATE odd SET n = 5", "a type other than jsonb")
        .outside(&["ALTER TABLE odd ALTER id TYPE TEXT"])
        .again(),
    Case::new("REWRITTEN", "DELETE FROM ruled WHERE id = 1", "say in the statement what it is")
        .outside(&["DROP RULE kept ON ruled"])
        .instead(&["UPDATE ruled SET gone = 1 WHERE id = 1"]),
    Case::new("ROW-SECURITY", "UPDATE private SET n = 5 WHERE id = 1", "BYPASSRLS")
        .refused_on(as_role)
        .on(as_role_past_policies)
        .again(),
    Case::new(
        "ROW-BREAKS-CONSTRAINT",
        "DELETE FROM checked WHERE id = 1",
        "repair it outside of a global transaction first",
    )
    .outside(&["UPDATE checked SET n = 1 WHERE id = 1"])
    .again(),
    Case::new(
        "CLAUSE",
        "UPDATE checked AS hf_other SET n = 3 WHERE hf_other.id = 2",
        "give it another alias",
    )
    .instead(&["UPDATE checked AS another SET n = 3 WHERE another.id = 2"]),
    Case::new(
        "TRIGGER",
        "UPDATE watched SET n = 7",
        "trigger stamps may write unseen: declare it as writing its own row only",
    )
    .on(trusting)
    .again(),
    Case::new("TRIGGER", "UPDATE watched SET n = 7", "or disable it")
        .outside(&["ALTER TABLE watched DISABLE TRIGGER stamps"])
        .again()
        .same_as(&["ALTER TABLE watched DISABLE TRIGGER stamps", "UPDATE watched SET n = 7"]),
    Case::new(
        "TRIGGER",
        "INSERT INTO heeded VALUES (3, 3)",
        "(by DELETE), and may write unseen: declare it as writing its own row only",
    )
    .on(trusting)
    .again(),
    Case::new(
        "TRIGGER",
        "INSERT INTO guarded VALUES (3, 3)",
        "(by DELETE), and may refuse that: declare it as trusted if it never does",
    )
    .on(trusting)
    .again(),
    Case::new(
        "TRIGGER",
        "UPDATE filled SET n = 7",
        "(by UPDATE), and what it fills in would not come back",
    )
    .refused_on(as_role)
    .on(as_role_that_silences)
    .again(),
    Case::new(
        "TRIGGER",
        "INSERT INTO coded VALUES (1, 1, 0) ON CONFLICT (id) DO UPDATE SET n = 7",
        "trigger codes may write unseen: declare it as writing its own row only",
    )
    .on(trusting)
    .again(),
];

/// A resource that trusts the triggers.
fn trusting(stage: &Stage<Postgres>) -> LocalBoxFuture<'_, AtResource<Postgres>> {
    async move {
        let names = ["stamps", "heeds", "guards", "codes"];
        let resource = stage.handfast.at(stage.pool.clone());
        names.into_iter().fold(resource, |at, name| at.trust_trigger(name)).await.unwrap()
    }
    .boxed_local()
}

fn as_role(stage: &Stage<Postgres>) -> LocalBoxFuture<'_, AtResource<Postgres>> {
    with_role(stage, "", None).boxed_local()
}

fn as_role_past_policies(stage: &Stage<Postgres>) -> LocalBoxFuture<'_, AtResource<Postgres>> {
    with_role(stage, "BYPASSRLS", None).boxed_local()
}

fn as_role_that_silences(stage: &Stage<Postgres>) -> LocalBoxFuture<'_, AtResource<Postgres>> {
    with_role(stage, "", Some("SET ON PARAMETER session_replication_role")).boxed_local()
}

/// A resource whose account reads and writes every table, and has one more right.
async fn with_role(
    stage: &Stage<Postgres>,
    attribute: &str,
    right: Option<&str>,
) -> AtResource<Postgres> {
    let role = format!("advice_{}", uuid::Uuid::new_v4().simple());
    let create = format!("CREATE ROLE {role} LOGIN {attribute}");
    let rights = ["ALL ON ALL TABLES IN SCHEMA public"].into_iter().chain(right);
    let grants = rights.map(|right| format!("GRANT {right} TO {role}"));
    for sql in std::iter::once(create).chain(grants) {
        Postgres::raw(&stage.pool, &sql).await.unwrap();
    }
    let options = stage.pool.connect_options().as_ref().clone().username(&role);
    let pool = PgPoolOptions::new().connect_with(options).await.unwrap();
    stage.handfast.at(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn advice() {
    check(&SETUP, CASES).await;
}
