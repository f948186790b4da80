//! The arguments of the attribute.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, Ident, Lit, LitStr, Result, Token, parenthesized};

use crate::time;

const KNOWN: &str =
    "name, timeout, on, propagation, labels, read_committed, can_commit_first, retry, tx";

const LABELS: &str = "labels";
/// The bounds of the coordinator, which refuses to begin a transaction beyond them.
const LABELS_MAX: usize = 16;
const LABEL_NAME_BYTES_MAX: usize = 64;

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
            if key == LABELS && input.peek(syn::token::Paren) {
                arguments.take_labels(key, input)?;
                continue;
            }
            let value = if input.peek(Token![=]) {
                input.parse::<Token![=]>()?;
                Some(input.parse::<Expr>()?)
            } else {
                None
            };
            arguments.take(key, value)?;
            comma(input)?;
        }
        Ok(arguments)
    }
}

impl Arguments {
    /// Takes `labels(order = id, "order-line" = line)`: names, and expressions to be displayed.
    fn take_labels(&mut self, key: Ident, input: ParseStream<'_>) -> Result<()> {
        self.note(&key)?;
        let content;
        parenthesized!(content in input);
        let labels = Punctuated::<Label, Token![,]>::parse_terminated(&content)?;
        if labels.len() > LABELS_MAX {
            let what = format!("{} labels: a transaction has at most {LABELS_MAX}", labels.len());
            return Err(Error::new(key.span(), what));
        }
        let mut names: Vec<String> = Vec::new();
        for Label { name, value } in &labels {
            if names.contains(&name.value()) {
                let what = format!("the label `{}` is given twice", name.value());
                return Err(Error::new(name.span(), what));
            }
            names.push(name.value());
            let text = quote_spanned!(value.span()=> ::std::string::ToString::to_string(&(#value)));
            self.settings.extend(quote!(.label(#name, #text)));
        }
        comma(input)
    }

    /// Refuses an argument that is given a second time.
    fn note(&mut self, key: &Ident) -> Result<()> {
        if self.seen.contains(key) {
            return Err(Error::new(key.span(), format!("`{key}` is given twice")));
        }
        self.seen.push(key.clone());
        Ok(())
    }

    fn take(&mut self, key: Ident, value: Option<Expr>) -> Result<()> {
        self.note(&key)?;
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
            (LABELS, _) => {
                let what = "labels stand in parentheses: `labels(order = order_id)`";
                return Err(Error::new(key.span(), what));
            }
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
        Ok(())
    }
}

/// One label, `order = id`. A name that is no identifier stands in quotes.
struct Label {
    name: LitStr,
    value: Expr,
}

impl Parse for Label {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let name = if input.peek(LitStr) {
            input.parse::<LitStr>()?
        } else {
            let name = input.call(Ident::parse_any)?;
            LitStr::new(&name.unraw().to_string(), name.span())
        };
        let text = name.value();
        if text.is_empty() || text.contains('=') || text.len() > LABEL_NAME_BYTES_MAX {
            let what = format!("a label's name has 1 to {LABEL_NAME_BYTES_MAX} bytes and no `=`");
            return Err(Error::new(name.span(), what));
        }
        input.parse::<Token![=]>()?;
        Ok(Self { name, value: input.parse()? })
    }
}

/// Reads the comma behind an argument that is not the last.
fn comma(input: ParseStream<'_>) -> Result<()> {
    if input.is_empty() { Ok(()) } else { input.parse::<Token![,]>().map(drop) }
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
