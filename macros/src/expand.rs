//! The function that the attribute makes of the one that it stands on.

use proc_macro2::{Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{
    Error, Expr, FnArg, GenericArgument, Ident, ItemFn, LitStr, Pat, Path, PathArguments, Result,
    ReturnType, Signature, Type, parse_quote,
};

use crate::arguments::Arguments;

/// The name by which a parameter is taken for the connection to the coordinator.
const CONNECTION: &str = "handfast";

/// The type that the body returns, and the conversion of an error of the transaction.
struct Returned {
    body: Type,
    convert: TokenStream,
}

/// Writes the transaction around the body.
///
/// # Errors
/// What keeps the function from being one, at the place where it is written.
pub(crate) fn expand(arguments: Arguments, function: ItemFn) -> Result<TokenStream> {
    let ItemFn { attrs, vis, sig, block } = function;
    if sig.asyncness.is_none() {
        let what = "a transaction is an async function: write `async fn`";
        return Err(Error::new(sig.fn_token.span(), what));
    }
    let Returned { body, convert } = returned(&sig)?;
    let on = match arguments.on {
        Some(on) => on,
        None => connection(&sig)?,
    };
    let name = arguments.name.unwrap_or_else(|| name_of(&sig));
    let settings = arguments.settings;
    let tx = arguments.tx.unwrap_or_else(|| Ident::new("_tx", Span::call_site()));
    let work = quote!(|#tx: ::handfast::Transaction| -> #body #block);
    let run = match arguments.retry {
        // Repeated, it borrows the parameters.
        Some(policy) => quote!(.retry(#policy).run(async #work)),
        None => quote!(.run(async move #work)),
    };
    // At the expression, so that a connection that is none is complained about there.
    let begin = quote_spanned!(on.span()=> (#on).transaction(#name));
    Ok(quote! {
        #(#attrs)*
        #vis #sig {
            #begin #settings #run.await #convert
        }
    })
}

/// Finds the connection to the coordinator among the parameters.
fn connection(sig: &Signature) -> Result<Expr> {
    let mut names = sig.inputs.iter().filter_map(name_of_parameter);
    if let Some(name) = names.find(|name| *name == CONNECTION) {
        return Ok(parse_quote!(#name));
    }
    if sig.receiver().is_some() {
        return Ok(parse_quote!(self.handfast));
    }
    let what = "which Handfast begins it? Give a parameter `handfast: &Handfast`, or write \
                `on = …` in the attribute";
    Err(Error::new(sig.ident.span(), what))
}

fn name_of_parameter(input: &FnArg) -> Option<&Ident> {
    let FnArg::Typed(typed) = input else { return None };
    if let Pat::Ident(name) = &*typed.pat { Some(&name.ident) } else { None }
}

/// The name for operators: the function's own, written as names of transactions are.
fn name_of(sig: &Signature) -> LitStr {
    let name = sig.ident.to_string();
    let name = name.strip_prefix("r#").unwrap_or(&name).replace('_', "-");
    LitStr::new(&name, sig.ident.span())
}

fn returned(sig: &Signature) -> Result<Returned> {
    let nothing = "a transaction says by its `Result` whether it commits: return one";
    let ReturnType::Type(_, declared) = &sig.output else {
        return Err(Error::new(sig.ident.span(), nothing));
    };
    let Type::Path(path) = &**declared else { return Err(Error::new(declared.span(), nothing)) };
    let Some(last) = path.path.segments.last().filter(|last| last.ident == "Result") else {
        return Err(Error::new(declared.span(), nothing));
    };
    let types = types_of(&last.arguments);
    if let [value, Type::Path(error)] = types.as_slice()
        && let Some(own) = error_of_work(&error.path)
    {
        let body = parse_quote!(::core::result::Result<#value, #own>);
        return Ok(Returned { body, convert: TokenStream::new() });
    }
    let convert = quote_spanned! {declared.span()=>
        .map_err(::core::convert::From::from)
    };
    Ok(Returned { body: (**declared).clone(), convert })
}

/// Returns `E`, if the path is `TransactionError<E>`.
fn error_of_work(path: &Path) -> Option<TokenStream> {
    let last = path.segments.last().filter(|last| last.ident == "TransactionError")?;
    match types_of(&last.arguments).as_slice() {
        [own] => Some(own.to_token_stream()),
        _ => None,
    }
}

fn types_of(arguments: &PathArguments) -> Vec<Type> {
    let PathArguments::AngleBracketed(arguments) = arguments else { return Vec::new() };
    let declared = |argument: &GenericArgument| {
        if let GenericArgument::Type(declared) = argument { Some(declared.clone()) } else { None }
    };
    arguments.args.iter().filter_map(declared).collect()
}
