//! The admin API: REST under `/api/v1`, health, metrics, and discovery for clients of Seata, all on
//! one port, with the console beside them.
//!
//! It views the coordinator's state through the engine and translates it to [`model`]'s messages.
//! It decides nothing. The OpenAPI document is generated from the same routes.

use axum::extract::DefaultBodyLimit;
use axum::routing::get;
use axum::{Extension, Json, Router, middleware};
use utoipa::OpenApi;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::console;

mod actions;
mod audit_view;
mod backup;
mod bounds;
mod bulk;
mod caller;
mod cluster;
mod cookie;
mod csrf;
mod cursor;
mod discovery;
mod events;
mod extract;
mod health;
mod list;
mod live;
mod locks;
mod mcp;
pub mod model;
mod named_lock_view;
mod named_locks;
mod overview;
mod pass_on;
mod problem;
mod recent_view;
mod row_key;
mod saga_actions;
mod saga_view;
mod sagas;
mod sign_in;
mod state;
mod timeline;
mod to_come;
mod transactions;
mod view;
mod view_permit;
mod waits;

pub use problem::{ApiError, XID_FORM};
pub(crate) use recent_view::keep as keep_recent;
pub use state::{About, AdminState, Readiness, SeataAddress};

#[derive(OpenApi)]
#[openapi(info(
    title = "Handfast admin API",
    description = "Looks at global transactions, branches and locks, and acts on them.",
    license(name = "Apache-2.0")
))]
struct ApiDocument;

/// Returns the OpenAPI document of the admin API.
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = routes().into_openapi();
    document.merge(local_routes().into_openapi());
    document.merge(live_routes().into_openapi());
    document.merge(probes().into_openapi());
    document
}

/// Returns the router of the admin port.
pub fn router(state: AdminState) -> Router {
    let document = Json(openapi());
    let (api, _) = routes().split_for_parts();
    let (local, _) = local_routes().split_for_parts();
    let (live, _) = live_routes().split_for_parts();
    let (probe, _) = probes().split_for_parts();
    let pass_on = middleware::from_fn_with_state(state.clone(), pass_on::to_the_leader);
    let api = api.route_layer(pass_on).merge(local);
    let asked = api.clone().with_state(state.clone());
    let watched = live::Api(asked.clone());
    let body_bytes_max = state.config().body_bytes_max;
    let health = Router::new()
        .route("/livez", get(health::live))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics));
    api.merge(live.layer(Extension(watched)))
        .route("/api/v1/openapi.json", get(async move |_viewer: caller::Viewer| document.clone()))
        // Outside of passing on: the headers that name a page are not sent to the leader.
        .route_layer(middleware::from_fn_with_state(state.clone(), cookie::to_bearer))
        .route("/mcp", mcp::route(&state, asked))
        .route_layer(middleware::from_fn_with_state(state.clone(), csrf::reject_cross_site))
        .merge(health)
        .merge(probe)
        .merge(console::router())
        .merge(discovery::router())
        .fallback(problem::no_route)
        .method_not_allowed_fallback(problem::no_method)
        .layer(DefaultBodyLimit::max(body_bytes_max))
        .layer(middleware::from_fn_with_state(state.clone(), bounds::enforce))
        .with_state(state)
}

/// Returns the routes that need no token and are not checked for cross-site requests.
fn probes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new().routes(routes!(health::of_seata))
}

/// Returns the routes that every node answers itself.
fn local_routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new()
        .routes(routes!(cluster::show))
        .routes(routes!(backup::make))
        .routes(routes!(audit_view::list))
        .routes(routes!(sign_in::me))
        .routes(routes!(sign_in::sign_in))
        .routes(routes!(sign_in::sign_out))
}

/// Returns the route that watches the others. A node that follows watches the leader's answers.
fn live_routes() -> OpenApiRouter<AdminState> {
    OpenApiRouter::new().routes(routes!(live::watch))
}

/// Returns the routes that the leader answers.
fn routes() -> OpenApiRouter<AdminState> {
    let mut document = ApiDocument::openapi();
    let bearer = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
    document.components.get_or_insert_default().add_security_scheme("token", bearer);
    OpenApiRouter::with_openapi(document)
        .routes(routes!(transactions::list))
        .routes(routes!(transactions::show))
        .routes(routes!(actions::commit))
        .routes(routes!(actions::rollback))
        .routes(routes!(actions::retry))
        .routes(routes!(actions::pause))
        .routes(routes!(actions::resume))
        .routes(routes!(actions::resolve))
        .routes(routes!(bulk::act))
        .routes(routes!(cluster::transfer))
        .routes(routes!(locks::list))
        .routes(routes!(locks::one))
        .routes(routes!(waits::queue))
        .routes(routes!(waits::graph))
        .routes(routes!(waits::deadlocks))
        .routes(routes!(named_locks::list))
        .routes(routes!(named_locks::one))
        .routes(routes!(named_locks::release))
        .routes(routes!(recent_view::show))
        .routes(routes!(events::list))
        .routes(routes!(events::requeue))
        .routes(routes!(events::skip))
        .routes(routes!(sagas::list, saga_actions::start))
        .routes(routes!(sagas::show))
        .routes(routes!(saga_actions::signal))
        .routes(routes!(saga_actions::cancel))
        .routes(routes!(overview::resources))
        .routes(routes!(overview::processes))
        .routes(routes!(overview::status))
}
