//! The attribute `#[handfast::transaction]`: an async function that runs as a global transaction.
//!
//! It writes the call of `NewTransaction::run` around the body and nothing more. The signature
//! stays as it is written, so that what the function returns can be read there.

mod arguments;
mod expand;
mod time;

use proc_macro::TokenStream;
use syn::{ItemFn, parse_macro_input};

use crate::arguments::Arguments;

/// Runs an async function as a global transaction: `Ok` commits, `Err` rolls back.
///
/// ```ignore
/// #[handfast::transaction(name = "place-order", timeout = "30s")]
/// async fn place_order(handfast: &Handfast, shop: &Shop, id: i64)
///     -> Result<(), TransactionError<sqlx::Error>>
/// {
///     let insert = "INSERT INTO orders (id) VALUES (?)";
///     sqlx::query(insert).bind(id).execute(&shop.orders).await?; // a sqlx::Error
///     Ok(())
/// }
/// ```
///
/// | argument | meaning | default |
/// | --- | --- | --- |
/// | `name = "…"` | the name that operators see | the function's, with `-` for `_` |
/// | `timeout = "30s"` | how long it may go undecided: `ms`, `s`, `m` or `h` | the coordinator's |
/// | `on = expression` | the `Handfast` that begins it | `handfast`, or `self.handfast` |
/// | `propagation = "requires-new"` | as `Propagation` | `required` |
/// | `labels(order = id)` | what operators find it by; the values are expressions | none |
/// | `read_committed`, `can_commit_first` | as the methods of `NewTransaction` | off |
/// | `retry`, `retry = 5`, `retry = Retry::new()…` | repeats it; a number is `attempts_max` | off |
/// | `tx = name` | names the `Transaction` for the body | unnamed |
///
/// The function returns a `Result`. If its error is written `TransactionError<E>`, the body's `?`
/// converts into `E`. Any other error type is that of the body as well, and must be
/// `From<TransactionError<…>>` of itself, as `anyhow::Error` is.
///
/// With `retry` the body may run several times: it borrows the parameters, and cannot move them.
/// Its error is a `std::error::Error` then, which that of `anyhow` is not.
#[proc_macro_attribute]
pub fn transaction(arguments: TokenStream, item: TokenStream) -> TokenStream {
    let arguments = parse_macro_input!(arguments as Arguments);
    let function = parse_macro_input!(item as ItemFn);
    expand::expand(arguments, function).unwrap_or_else(syn::Error::into_compile_error).into()
}
