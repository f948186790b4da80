module handfast/interop

go 1.19

require (
	github.com/go-sql-driver/mysql v1.6.0
	github.com/seata/seata-go v1.2.0
)
