//! Tokens and roles, without a server: the whole matrix.

use std::path::PathBuf;
use std::sync::Arc;

use handfast_server::security::{Access, AccessError, NewToken, Permission, Role, Tokens};
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderValue};

fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

fn headers(authorization: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(authorization).unwrap())])
}

#[test]
fn each_role_allows_its_purpose_and_nothing_else() {
    use Permission::{Act, Read, UseGrpc};
    let matrix = [
        (Role::Client, UseGrpc, true),
        (Role::Client, Read, false),
        (Role::Client, Act, false),
        (Role::Viewer, UseGrpc, false),
        (Role::Viewer, Read, true),
        (Role::Viewer, Act, false),
        (Role::Operator, UseGrpc, false),
        (Role::Operator, Read, true),
        (Role::Operator, Act, true),
    ];
    for (role, permission, allowed) in matrix {
        let drawn = NewToken::draw("alice", role).unwrap();
        let (_directory, path) = file(&format!("# tokens\n\n  {}  \n", drawn.line));
        let access = Access::Tokens(Arc::new(Tokens::read(&path).unwrap()));
        let checked = access.check(&headers(&format!("Bearer {}", drawn.token)), permission);
        match checked {
            Ok(caller) => {
                assert!(allowed, "{role} may {permission:?}");
                assert_eq!(&*caller.name(), "alice");
            }
            Err(error) => {
                assert!(!allowed, "{role} may not {permission:?}");
                assert_eq!(error.code(), "HF-ADM-FORBIDDEN");
            }
        }
    }
}

#[test]
fn only_the_exact_token_is_accepted() {
    let drawn = NewToken::draw("alice", Role::Operator).unwrap();
    let (_directory, path) = file(&drawn.line);
    let access = Access::Tokens(Arc::new(Tokens::read(&path).unwrap()));
    let hash = drawn.line.split(' ').next_back().unwrap();
    let wrong = [
        String::new(),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Basic {}", drawn.token),
        format!("Bearer {hash}"),
        format!("Bearer {}0", drawn.token),
        format!("Bearer {}", NewToken::draw("alice", Role::Operator).unwrap().token),
    ];
    for authorization in wrong {
        let checked = access.check(&headers(&authorization), Permission::Act);
        assert_eq!(checked, Err(AccessError::Unauthenticated), "{authorization}");
    }
    let none = access.check(&HeaderMap::new(), Permission::Read);
    assert_eq!(none.unwrap_err().code(), "HF-ADM-UNAUTHENTICATED");
    assert!(access.check(&headers(&format!("bearer {}", drawn.token)), Permission::Act).is_ok());
}

#[test]
fn without_tokens_everything_is_allowed() {
    for permission in [Permission::UseGrpc, Permission::Read, Permission::Act] {
        let caller = Access::Open.check(&HeaderMap::new(), permission).unwrap();
        assert_eq!(&*caller.name(), "anonymous");
    }
}

#[test]
fn a_line_that_cannot_be_read_is_named() {
    let hash = "0".repeat(64);
    let cases = [
        ("alice operator".to_owned(), "a line is `name role hash`"),
        (format!("alice operator {hash} extra"), "a line is `name role hash`"),
        (format!("alice admin {hash}"), "the role is client, viewer or operator"),
        (format!("alice viewer {}", &hash[1..]), "the hash is 64 hexadecimal digits"),
        (format!("alice viewer é{}", &hash[2..]), "the hash is 64 hexadecimal digits"),
        (format!("alice viewer x{}", &hash[1..]), "the hash is 64 hexadecimal digits"),
    ];
    for (line, what) in cases {
        let (_directory, path) = file(&format!("# comment\n{line}\n"));
        let error = Tokens::read(&path).unwrap_err().to_string();
        assert_eq!(error, format!("tokens file {}, line 2: {what}", path.display()));
    }
    let name = NewToken::draw("two words", Role::Client).unwrap_err();
    assert_eq!(name, "a name has 1 to 64 characters, none of them white space or `#`");
}

#[test]
fn a_token_is_not_shown_by_debug() {
    let drawn = NewToken::draw("alice", Role::Client).unwrap();
    assert!(!format!("{drawn:?}").contains(&drawn.token));
    assert!(!drawn.line.contains(&drawn.token));
}
