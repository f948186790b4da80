//! The arguments of the attribute.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Result, Token};

use crate::time;

const KNOWN: &str = "name, timeout, on, propagation, read_committed, can_commit_first, retry, tx";

/// The kinds of propagation, as written and as variants of `Propagation`.
const KINDS: [(&str, &str); 6] = [
    ("required", "Required"),
    ("requires-new", "RequiresNew"),
    ("supports", "Supports"),
    ("not-supported", "NotSupported"),
    ("mandatory", "Mandatory"),
    ("never", "Never"),
];

/// The content of the brackets, checked.
#[derive(Default)]
pub(crate) struct Arguments {
    pub(crate) name: Option<LitStr>,
    pub(crate) on: Option<Expr>,
    pub(crate) tx: Option<Ident>,
    /// The policy, if the transaction may be repeated.
    pub(crate) retry: Option<TokenStream>,
    /// Calls of the builder's methods, in the order in which they are written.
    pub(crate) settings: TokenStream,
    seen: Vec<Ident>,
}

impl Parse for Arguments {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let mut arguments = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            let value = if input.peek(Token![=]) {
                input.parse::<Token![=]>()?;
                Some(input.parse::<Expr>()?)
            } else {
                None
            };
            arguments.take(key, value)?;
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(arguments)
    }
}

impl Arguments {
    fn take(&mut self, key: Ident, value: Option<Expr>) -> Result<()> {
        if self.seen.contains(&key) {
            return Err(Error::new(key.span(), format!("`{key}` is given twice")));
        }
        match (key.to_string().as_str(), value) {
            ("name", Some(value)) => {
                let name = text(&value)?;
                if name.value().is_empty() {
                    return Err(Error::new(name.span(), "operators need a name to see"));
                }
                self.name = Some(name);
            }
            ("timeout", Some(value)) => {
                let timeout = timeout(&value)?;
                self.settings.extend(quote!(.timeout(#timeout)));
            }
            ("on", Some(value)) => self.on = Some(value),
            ("propagation", Some(value)) => {
                let kind = kind(&text(&value)?)?;
                self.settings.extend(quote!(.propagation(::handfast::Propagation::#kind)));
            }
            ("read_committed" | "can_commit_first", None) => {
                self.settings.extend(quote!(.#key()));
            }
            ("retry", value) => self.retry = Some(retry(value)),
            ("tx", Some(value)) => self.tx = Some(identifier(&value)?),
            ("name" | "timeout" | "on" | "propagation" | "tx", None) => {
                return Err(Error::new(key.span(), format!("`{key}` takes a value: `{key} = …`")));
            }
            ("read_committed" | "can_commit_first", Some(value)) => {
                return Err(Error::new(value.span(), format!("`{key}` takes no value")));
            }
            _ => {
                let what = format!("`{key}` is no argument of the attribute: it takes {KNOWN}");
                return Err(Error::new(key.span(), what));
            }
        }
        self.seen.push(key);
        Ok(())
    }
}

/// A length of time in quotes, or an expression of type `Duration`.
fn timeout(value: &Expr) -> Result<TokenStream> {
    let Expr::Lit(ExprLit { lit, .. }) = value else { return Ok(quote!(#value)) };
    let Lit::Str(text) = lit else {
        return Err(Error::new(lit.span(), "a timeout has a unit, in quotes: \"30s\""));
    };
    let length = time::parse(&text.value()).map_err(|wrong| Error::new(text.span(), wrong))?;
    let (seconds, nanos) = (length.as_secs(), length.subsec_nanos());
    Ok(quote!(::core::time::Duration::new(#seconds, #nanos)))
}

/// A number of attempts, or an expression of type `Retry`, or the default.
fn retry(value: Option<Expr>) -> TokenStream {
    match value {
        None => quote!(::handfast::Retry::new()),
        Some(Expr::Lit(ExprLit { lit: Lit::Int(attempts), .. })) => {
            quote!(::handfast::Retry::new().attempts_max(#attempts))
        }
        Some(policy) => quote!(#policy),
    }
}

fn kind(text: &LitStr) -> Result<Ident> {
    let value = text.value();
    let found = KINDS.iter().find(|(name, _)| *name == value);
    let (_, variant) = found.ok_or_else(|| {
        let names = KINDS.map(|(name, _)| name).join(", ");
        Error::new(text.span(), format!("`{value}` is no propagation: it is one of {names}"))
    })?;
    Ok(Ident::new(variant, Span::call_site()))
}

fn text(value: &Expr) -> Result<LitStr> {
    if let Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) = value {
        return Ok(text.clone());
    }
    Err(Error::new(value.span(), "this is a text in quotes"))
}

fn identifier(value: &Expr) -> Result<Ident> {
    let found = if let Expr::Path(path) = value { path.path.get_ident() } else { None };
    found.cloned().ok_or_else(|| Error::new(value.span(), "this is the name of a variable"))
}
