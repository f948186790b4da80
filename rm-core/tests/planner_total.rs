//! The planner answers every text without a panic, and its plans keep their invariants.

use std::collections::HashMap;

use handfast_rm_core::plan::{
    Arguments, Change, DeleteImage, Dialect, InsertAfter, Plan, Query, Reads, UpdateImage,
    UpsertAfter, fuzz_entry, undo_sql,
};
use proptest::prelude::*;

const DIALECTS: [Dialect; 3] = [Dialect::Postgres, Dialect::MySql, Dialect::Sqlite];

/// Statements to be modified, and the words to modify them with.
const STATEMENTS: &[&str] = &[
    "update t set name=?, age=? where id=? and code in (?, 'x') order by age limit ?",
    "update t as x set (name, age) = (select a, b from s) where x.id=$1 returning *",
    "delete from t where id=?1 and code=?2 or not exists (select 1 from s where s.id=t.id)",
    "insert into t(id, code, name, age) values (?, 'a', lower(?), 1), (2, ?, default, null)",
    "insert into t(id, code) values (null, ?) on duplicate key update age=values(age)+1",
    "insert into t(id, code) values ($1, $2) on conflict (id, code) do update set age=1",
    "replace into t set id=1, code='it''s', age=?",
    "with w as (select 1) update t set age=1 where id in (select * from w)",
    "select name, a is distinct from b from t where id=? for update skip locked",
    "explain analyze delete from t; begin; /* c */ -- d",
    "update t a join s on s.id=a.id and s.code=? set a.name=?, s.name=? where a.age=?",
    "update t, s set t.name='x' where t.id=s.id",
    "with n as (insert into t(id, code) values ($1, 'x') returning id), m as (select 1 as a) \
     update t set age=$2 where id in (select id from n) returning *",
    "update t set name=q.name from (select id, name from s where age=$1 limit 1) q where t.id=q.id",
    "delete a, b.* from t a left join s b using (id) where a.age=?",
    "delete from t using s where s.id=t.id returning *",
    "select distinct t.name, ? from t left join s on s.id=t.id where s.age=? for update",
    "insert into t(id, code, name) select ?, 'a', 'b' from dual where not exists (select 1 from s)",
];
const WORDS: &[&str] = &[
    "",
    " ",
    "(",
    ")",
    ",",
    ";",
    "?",
    "$1",
    "?9",
    "'",
    "\"",
    "`",
    "/*",
    "*/",
    "--",
    "\n",
    "select",
    "where",
    "set",
    "from",
    "values",
    "returning",
    "order by 1",
    "limit 1",
    "for update",
    "on",
    "null",
    "default",
    "\u{e9}",
    "\u{1f600}",
    "$q$",
    "[",
    "]",
    "update",
    "or",
    "as t",
    ":=",
    "@x",
];

fn broken() -> impl Strategy<Value = String> {
    let edits =
        prop::collection::vec((any::<prop::sample::Index>(), 0..WORDS.len(), 0..12_usize), 0..5);
    (0..STATEMENTS.len(), edits).prop_map(|(statement, edits)| {
        let mut sql: Vec<char> = STATEMENTS[statement].chars().collect();
        for (place, word, removed) in edits {
            let start = place.index(sql.len() + 1);
            let end = (start + removed).min(sql.len());
            sql.splice(start..end, WORDS[word].chars());
        }
        sql.into_iter().collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn any_text_is_answered(sql in ".{0,80}") {
        for dialect in DIALECTS {
            fuzz_entry(dialect, Reads::Local, &sql);
        }
    }

    #[test]
    fn broken_statements_are_answered(sql in broken()) {
        for dialect in DIALECTS {
            for reads in [Reads::Local, Reads::Committed] {
                if let Some(plan) = fuzz_entry(dialect, reads, &sql) {
                    check_invariants(dialect, &sql, &plan);
                }
            }
        }
    }
}

/// If arguments are passed by position, every query uses each of them exactly once. Every generated
/// text is tied to the user's text.
fn check_invariants(dialect: Dialect, sql: &str, plan: &Plan) {
    let queries = queries(plan);
    for query in &queries {
        assert!(query.text == sql || query.text.contains(" /* hf:"), "{}", query.text);
        assert_eq!(query.arguments, Arguments::AsBound);
    }
    let Some(first) = queries.first().filter(|_| dialect == Dialect::MySql) else { return };
    for query in &queries {
        assert_eq!(placeholders(&query.text), placeholders(&first.text), "{}", query.text);
    }
}

fn placeholders(sql: &str) -> usize {
    use sqlparser::{
        dialect::MySqlDialect,
        tokenizer::{Token, Tokenizer},
    };

    let Ok(tokens) = Tokenizer::new(&MySqlDialect {}, sql).tokenize() else {
        panic!("not even tokens: {sql}");
    };
    tokens.iter().filter(|token| matches!(token, Token::Placeholder(_))).count()
}

fn queries(plan: &Plan) -> Vec<Query> {
    match plan {
        Plan::Pass => Vec::new(),
        Plan::LockingRead(read) => vec![read.query.clone()],
        Plan::JoinedRead(read) => {
            read.keys.iter().chain(std::iter::once(&read.query)).cloned().collect()
        }
        Plan::With(plan) => {
            let before = plan.parts.iter().filter_map(|part| part.before.clone());
            before.chain([plan.query.clone()]).collect()
        }
        Plan::Selected(plan) => vec![plan.select.clone()],
        Plan::Several(plan) => plan.parts.iter().map(|part| part.before.clone()).collect(),
        Plan::Update(plan) => match &plan.image {
            UpdateImage::Together(query) => vec![query.clone()],
            UpdateImage::Read { before, change: run, .. } => {
                [vec![before.clone()], change(run)].concat()
            }
        },
        Plan::Delete(plan) => match &plan.image {
            DeleteImage::Returned(query) => vec![query.clone()],
            DeleteImage::Read { before, change: run } => {
                [vec![before.clone()], change(run)].concat()
            }
        },
        Plan::Insert(plan) => {
            let mut queries = vec![plan.change.clone()];
            match &plan.after {
                InsertAfter::Returned => {}
                InsertAfter::ByValues { query, generated } => {
                    queries.push(query.clone());
                    queries.extend(generated.as_ref().map(|keys| keys.query(7, 1)));
                }
                InsertAfter::ByGenerated(keys) => queries.push(keys.query(7, 1)),
            }
            queries
        }
        Plan::Upsert(plan) => {
            let mut queries = plan.probes.clone();
            queries.push(plan.change.clone());
            if let UpsertAfter::Probed { found, generated, .. } = &plan.after {
                queries.extend(found.iter().cloned());
                queries.extend(generated.as_ref().map(|keys| keys.query(7, 1)));
            }
            queries
        }
    }
}

/// The by-key form of a change has additional placeholders for keys. The text cases test it.
fn change(change: &Change) -> Vec<Query> {
    match change {
        Change::ByPredicate(query) => vec![query.clone()],
        Change::ByKey(keyed) => {
            assert_eq!(keyed.for_rows(3).arguments, Arguments::AsBoundThenKeys);
            Vec::new()
        }
    }
}

#[test]
fn equal_images_of_different_texts_differ() {
    let mut seen: HashMap<String, &str> = HashMap::new();
    let texts = ["update t set age=? where name=?", "update t set age=1-? where name=?"];
    for sql in texts {
        let Some(Plan::Update(plan)) = fuzz_entry(Dialect::MySql, Reads::Local, sql) else {
            panic!("{sql} has no plan");
        };
        let UpdateImage::Read { before, .. } = plan.image else { panic!("{sql} is not read") };
        let other = seen.insert(before.text, sql);
        assert_eq!(other, None, "two texts share an image: {sql}");
    }
}

/// SQLite refuses expressions more than 1,000 levels deep.
#[test]
fn many_rows_make_no_deep_expression() {
    let rows = vec!["(?, ?, 'n', 1)"; 5_000].join(", ");
    let sql = format!("replace into t(id, code, name, age) values {rows}");
    let Some(Plan::Upsert(plan)) = fuzz_entry(Dialect::Sqlite, Reads::Local, &sql) else {
        panic!("no plan");
    };
    for probe in plan.probes {
        let depths = probe.text.chars().scan(0_usize, |depth, c| {
            *depth = *depth + usize::from(c == '(') - usize::from(c == ')' && *depth > 0);
            Some(*depth)
        });
        assert!(depths.max().is_some_and(|depth| depth < 20));
        let longest = probe.text.split(['(', ')']).map(|part| part.matches(" OR ").count()).max();
        assert!(longest.is_some_and(|terms| terms <= 100));
    }
}

#[test]
fn parents_come_first() {
    let check = |rows: &[(Option<u8>, Option<u8>)], order: &[usize]| {
        assert_eq!(undo_sql::parents_first(rows), order);
    };
    check(&[], &[]);
    check(&[(Some(1), None), (Some(2), None)], &[0, 1]);
    check(&[(Some(3), Some(2)), (Some(2), Some(1)), (Some(1), None)], &[2, 1, 0]);
    check(&[(Some(3), Some(9)), (Some(2), Some(3))], &[0, 1]);
    // A row that refers to itself, then two rows that refer to each other.
    check(&[(Some(1), Some(1))], &[0]);
    check(&[(Some(1), Some(2)), (Some(2), Some(1))], &[1, 0]);
    // A later parent of two chains is placed once.
    check(&[(Some(4), Some(1)), (Some(5), Some(1)), (Some(1), None)], &[2, 0, 1]);
}

#[test]
fn circles_are_found() {
    let check = |ahead: &[&[usize]], circular: bool| {
        let ahead: Vec<Vec<usize>> = ahead.iter().map(|row| row.to_vec()).collect();
        assert_eq!(undo_sql::is_circular(&ahead), circular, "{ahead:?}");
    };
    check(&[], false);
    check(&[&[], &[0], &[0, 1]], false);
    check(&[&[2, 1], &[2], &[]], false);
    // A row that refers to itself is put back along with itself.
    check(&[&[0]], false);
    check(&[&[1], &[0]], true);
    check(&[&[], &[3, 0], &[1], &[2]], true);
}
