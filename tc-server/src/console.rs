//! The console: static files, embedded in the program, that a browser runs against the admin API.
//!
//! The files are those of `tc-server/console`, as they are written: there is no build step. Their
//! names in URLs hold a digest of all of them, so that a browser keeps them for as long as they are
//! the same and never mixes those of two versions. Reading them takes no token; everything that
//! they show comes from the API, which asks for one.

use std::sync::LazyLock;

use axum::Router;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use http::{HeaderName, StatusCode};
use xxhash_rust::xxh3::Xxh3;

/// Nothing from outside, nothing inline, no page around it, and no text that becomes markup: what
/// clients have named is shown as text, and a mistake in that is refused by the browser as well.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";
const OPENER_POLICY: HeaderName = HeaderName::from_static("cross-origin-opener-policy");

/// Stands in `index.html` for the digest.
const BUILD: &str = "BUILD";
/// Stands in `index.html` for links to all scripts: a browser then asks for them at once, and not
/// for each when it has read another that imports it.
const PRELOADS: &str = "PRELOADS";

/// A file of the console.
struct ConsoleFile {
    name: &'static str,
    bytes: &'static [u8],
}

macro_rules! files {
    ($($name:literal,)*) => {
        &[$(ConsoleFile { name: $name, bytes: include_bytes!(concat!("../console/", $name)) },)*]
    };
}

const INDEX: &str = include_str!("../console/index.html");

static FILES: &[ConsoleFile] = files![
    "app.js",
    "icon.svg",
    "lib/api.js",
    "lib/format.js",
    "lib/keys.js",
    "lib/live.js",
    "lib/parts.js",
    "lib/route.js",
    "lib/table.js",
    "lib/waits.js",
    "screens/audit.js",
    "screens/cluster.js",
    "screens/dirty-write.js",
    "screens/events.js",
    "screens/first-start.js",
    "screens/locks.js",
    "screens/named-locks.js",
    "screens/needs-you.js",
    "screens/processes.js",
    "screens/saga.js",
    "screens/sagas.js",
    "screens/sign-in.js",
    "screens/transaction.js",
    "screens/transactions.js",
    "style.css",
    "vendor/hooks.js",
    "vendor/htm.js",
    "vendor/preact.js",
    "vendor/signals-core.js",
    "vendor/signals.js",
];

/// The digest of all files.
static DIGEST: LazyLock<String> = LazyLock::new(|| {
    let mut digest = Xxh3::new();
    digest.update(INDEX.as_bytes());
    for file in FILES {
        digest.update(file.name.as_bytes());
        digest.update(file.bytes);
    }
    format!("{:016x}", digest.digest())
});

static PAGE: LazyLock<String> = LazyLock::new(|| {
    let scripts = FILES.iter().filter(|file| file.name.ends_with(".js"));
    let link = |file: &ConsoleFile| {
        format!("<link rel=\"modulepreload\" href=\"/console/{BUILD}/{}\">\n    ", file.name)
    };
    let links: String = scripts.map(link).collect();
    INDEX.replace(PRELOADS, links.trim_end()).replace(BUILD, &DIGEST)
});

/// Returns the routes of the console.
pub(crate) fn router<S: Clone + Send + Sync + 'static>() -> Router<S> {
    Router::new().route("/", get(page)).route("/console/{digest}/{*name}", get(file))
}

async fn page() -> Response {
    let headers = [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        // Asked for again each time, since it names the files.
        (CACHE_CONTROL, "no-cache"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (OPENER_POLICY, "same-origin"),
    ];
    (headers, PAGE.as_str()).into_response()
}

async fn file(Path((digest, name)): Path<(String, String)>) -> Response {
    let found = FILES.iter().find(|file| file.name == name);
    let Some(file) = found.filter(|_| digest == *DIGEST) else {
        // A page of another version of the program: loaded again, it names the files of this one.
        return (StatusCode::NOT_FOUND, "no such file of the console: load the page again\n")
            .into_response();
    };
    let headers = [
        (CONTENT_TYPE, content_type(file.name)),
        (CACHE_CONTROL, "public, max-age=31536000, immutable"),
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, file.bytes).into_response()
}

fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    const BYTES_MAX: usize = 250_000;
    /// Files for those who work on the console.
    const NOT_SERVED: [&str; 4] = ["index.html", "LICENSES", "README.md", "tsconfig.json"];

    fn on_disk(folder: &Path, within: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let name = format!("{within}{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                on_disk(&entry.path(), &format!("{name}/"), found);
            } else if !name.ends_with(".d.ts") {
                found.insert(name);
            }
        }
    }

    #[test]
    fn every_file_is_embedded_and_all_are_small() {
        let mut found = BTreeSet::new();
        on_disk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("console"), "", &mut found);
        found.retain(|name| !NOT_SERVED.iter().any(|it| name.ends_with(it)));
        let embedded: BTreeSet<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert_eq!(embedded, found);
        let bytes = INDEX.len() + FILES.iter().map(|file| file.bytes.len()).sum::<usize>();
        assert!(bytes < BYTES_MAX, "{bytes} bytes");
    }

    #[test]
    fn the_page_names_the_files_of_this_build_and_has_nothing_inline() {
        assert!(PAGE.contains(&format!("/console/{}/app.js", *DIGEST)));
        assert!(!PAGE.contains(BUILD) && !PAGE.contains(PRELOADS));
        assert_eq!(PAGE.matches("modulepreload").count(), FILES.len() - 2, "every script");
        for inline in ["<style", "style=", " onload", "<script>", "http"] {
            assert!(!PAGE.contains(inline), "{inline}");
        }
    }

    // Every file of ours: nothing that makes markup of text, and nothing from elsewhere.
    #[test]
    fn no_file_makes_markup_of_text() {
        for file in FILES.iter().filter(|file| !file.name.starts_with("vendor/")) {
            let text = std::str::from_utf8(file.bytes).unwrap();
            for wrong in ["innerHTML", "insertAdjacentHTML", "document.write", "eval(", "https://"]
            {
                assert!(!text.contains(wrong), "{}: {wrong}", file.name);
            }
        }
    }
}
