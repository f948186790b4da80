package main

import (
	"context"
	"database/sql"
	"strings"
	"sync"

	at "github.com/seata/seata-go/pkg/datasource/sql"
)

// The service's database, bare and behind the client's drivers. Each is opened when it is first
// used, since opening registers the database as a resource.
type databases struct {
	name string
	lock sync.Mutex
	open map[string]*sql.DB
}

func (d *databases) plain() *sql.DB { return d.behind("mysql") }

func (d *databases) at() *sql.DB { return d.behind(at.SeataATMySQLDriver) }

func (d *databases) xa() *sql.DB { return d.behind(at.SeataXAMySQLDriver) }

func (d *databases) behind(driver string) *sql.DB {
	d.lock.Lock()
	defer d.lock.Unlock()
	if it, known := d.open[driver]; known {
		return it
	}
	it, err := sql.Open(driver, d.name)
	if err != nil {
		// The name is this program's own argument.
		panic(err)
	}
	if d.open == nil {
		d.open = map[string]*sql.DB{}
	}
	it.SetMaxOpenConns(50)
	d.open[driver] = it
	return it
}

// What runs a statement: a database or a transaction.
type executor interface {
	ExecContext(ctx context.Context, statement string, arguments ...any) (sql.Result, error)
	QueryContext(ctx context.Context, statement string, arguments ...any) (*sql.Rows, error)
}

// One statement; its result as text: rows with ; between, columns with , or the number of rows.
func run(ctx context.Context, on executor, statement string) (string, error) {
	statement = strings.TrimSpace(statement)
	if strings.HasPrefix(statement, "select") {
		rows, err := on.QueryContext(ctx, statement)
		if err != nil {
			return "", err
		}
		defer rows.Close()
		return text(rows)
	}
	result, err := on.ExecContext(ctx, statement)
	if err != nil {
		return "", err
	}
	_, err = result.RowsAffected()
	return "", err
}

// Statements with ;; between them, in one local transaction of the application.
func runInTransaction(ctx context.Context, on *sql.DB, statements string) (string, error) {
	local, err := on.BeginTx(ctx, nil)
	if err != nil {
		return "", err
	}
	last := ""
	for _, statement := range strings.Split(statements, ";;") {
		if last, err = run(ctx, local, statement); err != nil {
			local.Rollback()
			return "", err
		}
	}
	return last, local.Commit()
}

func text(rows *sql.Rows) (string, error) {
	columns, err := rows.Columns()
	if err != nil {
		return "", err
	}
	var lines []string
	for rows.Next() {
		values := make([]sql.NullString, len(columns))
		places := make([]any, len(columns))
		for at := range values {
			places[at] = &values[at]
		}
		if err := rows.Scan(places...); err != nil {
			return "", err
		}
		var row []string
		for _, value := range values {
			row = append(row, value.String)
		}
		lines = append(lines, strings.Join(row, ","))
	}
	return strings.Join(lines, ";"), rows.Err()
}
