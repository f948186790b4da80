//! The database of the service, whichever of the three it is.

use anyhow::{Result, bail};
use handfast::Handfast;
use handfast_sea_orm::Orm;
use sea_orm::sea_query::OnConflict;
use sea_orm::{ActiveValue::Set, ConnectionTrait, EntityTrait, Schema};
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{MySqlPool, PgPool, SqlitePool};

use crate::entity::{product, sale};

/// Opens a database, makes Handfast's tables in it, and lets it take part in AT mode.
///
/// # Errors
/// When the database or the coordinator cannot be reached, or the URL is of another product.
pub async fn open(handfast: &Handfast, url: &str) -> Result<Orm> {
    match url.split_once(':').map_or(url, |(scheme, _)| scheme) {
        "postgres" => {
            let pool = PgPool::connect(url).await?;
            handfast.migrate(&pool).await?;
            Ok(Orm::on(&handfast.at(pool).await?))
        }
        "mysql" => {
            let pool = MySqlPool::connect(url).await?;
            handfast.migrate(&pool).await?;
            Ok(Orm::on(&handfast.at(pool).await?))
        }
        "sqlite" => {
            let options = url.parse::<SqliteConnectOptions>()?.create_if_missing(true);
            let pool = SqlitePool::connect_with(options).await?;
            handfast.migrate(&pool).await?;
            Ok(Orm::on(&handfast.at(pool).await?))
        }
        other => bail!("{other} is none of postgres, mysql, sqlite"),
    }
}

/// Makes the tables of the service and puts two products into them, if they are not there.
///
/// # Errors
/// What the database says.
pub async fn furnish(stock: &Orm) -> Result<()> {
    let schema = Schema::new(stock.get_database_backend());
    // Outside of a global the statements go to the database as they are.
    stock.execute(schema.create_table_from_entity(product::Entity).if_not_exists()).await?;
    stock.execute(schema.create_table_from_entity(sale::Entity).if_not_exists()).await?;
    let products = [(7, "lamp", 10), (8, "vase", 3)].map(|(id, name, units)| {
        product::ActiveModel { id: Set(id), name: Set(name.to_owned()), units: Set(units) }
    });
    let there =
        OnConflict::column(product::Column::Id).do_nothing_on([product::Column::Id]).to_owned();
    let inserting = product::Entity::insert_many(products).on_conflict(there);
    inserting.exec_without_returning(stock).await?;
    Ok(())
}
