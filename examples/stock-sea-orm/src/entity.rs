//! The tables.

/// A product, and how many units of it there are.
pub mod product {
    use sea_orm::entity::prelude::*;
    use serde::Serialize;

    #[sea_orm::model]
    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize)]
    #[sea_orm(table_name = "product")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub id: i32,
        pub name: String,
        pub units: i32,
        #[sea_orm(has_many)]
        #[serde(skip)]
        pub sales: HasMany<super::sale::Entity>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

/// Units of a product that were sold.
pub mod sale {
    use sea_orm::entity::prelude::*;
    use serde::Serialize;

    #[sea_orm::model]
    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel, Serialize)]
    #[sea_orm(table_name = "sale")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i32,
        pub product_id: i32,
        pub units: i32,
        #[sea_orm(belongs_to, from = "product_id", to = "id")]
        #[serde(skip)]
        pub product: BelongsTo<super::product::Entity>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}
