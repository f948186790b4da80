package main

import (
	"context"
	"database/sql"
	"fmt"
	"sync"

	"github.com/seata/seata-go/pkg/rm/tcc"
	"github.com/seata/seata-go/pkg/tm"
)

// A TCC action: a row of the table reservation says how it stands. Phase two writes down how often
// it came, so that a repetition can be seen.
type reservation struct{ database *sql.DB }

// What phase two must know.
type reserved struct {
	Key string `tccParam:"key"`
}

func (r *reservation) GetActionName() string { return "reserve" }

func (r *reservation) Prepare(ctx context.Context, params interface{}) (bool, error) {
	key := params.(reserved).Key
	insert := fmt.Sprintf("insert into reservation (id, state, ends) values (%s, 'tried', 0)", key)
	_, err := r.database.Exec(insert)
	return err == nil, err
}

func (r *reservation) Commit(_ context.Context, it *tm.BusinessActionContext) (bool, error) {
	return r.end(it, "confirmed")
}

func (r *reservation) Rollback(_ context.Context, it *tm.BusinessActionContext) (bool, error) {
	return r.end(it, "cancelled")
}

func (r *reservation) end(it *tm.BusinessActionContext, state string) (bool, error) {
	change := "update reservation set state = '%s', ends = ends + 1 where id = %v"
	_, err := r.database.Exec(fmt.Sprintf(change, state, it.ActionContext["key"]))
	return err == nil, err
}

var (
	registering sync.Once
	action      *tcc.TCCServiceProxy
)

// A key reserves; "register" only makes the action known to the coordinator.
func reserve(ctx context.Context, database *sql.DB, key string) (string, error) {
	var err error
	registering.Do(func() { action, err = tcc.NewTCCServiceProxy(&reservation{database}) })
	if err != nil || key == "register" {
		return "", err
	}
	_, err = action.Prepare(ctx, reserved{key})
	return "", err
}
