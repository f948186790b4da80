//! The tables of a library: shelves of books, and readers who borrow them.

/// A shelf has many books.
pub(crate) mod shelf {
    use sea_orm::entity::prelude::*;

    #[sea_orm::model]
    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "shelf")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i32,
        pub label: String,
        #[sea_orm(has_many)]
        pub books: HasMany<super::book::Entity>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

/// A book stands on one shelf and is lent to many readers.
pub(crate) mod book {
    use sea_orm::entity::prelude::*;

    #[sea_orm::model]
    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "book")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i32,
        pub shelf_id: i32,
        pub title: String,
        pub pages: i32,
        #[sea_orm(column_type = "Decimal(Some((10, 2)))")]
        pub price: Decimal,
        pub remark: Option<String>,
        #[sea_orm(belongs_to, from = "shelf_id", to = "id")]
        pub shelf: BelongsTo<super::shelf::Entity>,
        #[sea_orm(has_many, via = "loan")]
        pub readers: HasMany<super::reader::Entity>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

/// A reader borrows many books.
pub(crate) mod reader {
    use sea_orm::entity::prelude::*;

    #[sea_orm::model]
    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "reader")]
    pub struct Model {
        #[sea_orm(primary_key)]
        pub id: i32,
        pub name: String,
        #[sea_orm(unique)]
        pub card: String,
        #[sea_orm(has_many, via = "loan")]
        pub books: HasMany<super::book::Entity>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

/// A loan joins a book and a reader.
pub(crate) mod loan {
    use sea_orm::entity::prelude::*;

    #[sea_orm::model]
    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "loan")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub book_id: i32,
        #[sea_orm(primary_key, auto_increment = false)]
        pub reader_id: i32,
        #[sea_orm(default_value = 14)]
        pub days: i32,
        #[sea_orm(belongs_to, from = "book_id", to = "id")]
        pub book: BelongsTo<super::book::Entity>,
        #[sea_orm(belongs_to, from = "reader_id", to = "id")]
        pub reader: BelongsTo<super::reader::Entity>,
    }

    impl ActiveModelBehavior for ActiveModel {}
}

/// A setting has a text for its key.
pub(crate) mod setting {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, Eq, DeriveEntityModel)]
    #[sea_orm(table_name = "setting")]
    pub struct Model {
        #[sea_orm(primary_key, auto_increment = false, column_type = "String(StringLen::N(40))")]
        pub name: String,
        pub value: i64,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}
