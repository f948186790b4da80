package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/seata/seata-go/pkg/protocol/message"
	"github.com/seata/seata-go/pkg/remoting/getty"
	"github.com/seata/seata-go/pkg/tm"
)

// An actor is in one global at a time, from begin to commit or rollback inside the client's own
// function for it.
type actor struct {
	commands  <-chan command
	databases *databases
	// Holds the XID, as the client keeps it.
	ctx context.Context
}

func startActor(databases *databases) chan<- command {
	commands := make(chan command, 64)
	it := &actor{commands: commands, databases: databases, ctx: noGlobal()}
	go it.run()
	return commands
}

func noGlobal() context.Context { return tm.InitSeataContext(context.Background()) }

func (a *actor) run() {
	for told := range a.commands {
		if told.verb == "begin" {
			a.runGlobal(told)
		} else {
			a.carryOut(told)
		}
	}
}

var errRollBack = errors.New("the application rolls back")

func (a *actor) runGlobal(begin command) {
	timeout, err := strconv.Atoi(begin.rest)
	if err != nil {
		begin.fail(err)
		return
	}
	a.ctx = noGlobal()
	awaiting := begin
	config := &tm.GtxConfig{Name: "interop", Timeout: time.Duration(timeout) * time.Millisecond}
	err = tm.WithGlobalTx(a.ctx, config, func(ctx context.Context) error {
		begin.answer(tm.GetXID(ctx))
		awaiting = a.carryOutUntilEnd()
		if awaiting.verb == "rollback" {
			return errRollBack
		}
		return nil
	})
	// The client wraps what the application returns, and says what was answered in the context.
	status := *tm.GetTxStatus(a.ctx)
	a.ctx = noGlobal()
	if err != nil && awaiting.verb != "rollback" {
		awaiting.fail(err)
		return
	}
	awaiting.answer(word(status))
}

// Java's words for the end of a global.
func word(status message.GlobalStatus) string {
	switch status {
	case message.GlobalStatusBegin:
		return "Begin"
	case message.GlobalStatusCommitted:
		return "Committed"
	case message.GlobalStatusRollbacked:
		return "RollbackDone"
	case message.GlobalStatusRollbacking, message.GlobalStatusRollbackRetrying:
		return "Rollbacking"
	case message.GlobalStatusTimeoutRollbacked:
		return "TimeoutRollbacked"
	case message.GlobalStatusFinished:
		return "Finished"
	case message.GlobalStatusRollbackFailed:
		return "RollbackFailed"
	default:
		return fmt.Sprintf("status %d", status)
	}
}

func (a *actor) carryOutUntilEnd() command {
	for {
		told := <-a.commands
		if told.verb == "commit" || told.verb == "rollback" {
			return told
		}
		a.carryOut(told)
	}
}

func (a *actor) carryOut(told command) {
	result, err := a.result(told.verb, told.rest)
	if err != nil {
		told.fail(err)
		return
	}
	told.answer(result)
}

func (a *actor) result(verb, rest string) (string, error) {
	switch verb {
	case "plain":
		return run(context.Background(), a.databases.plain(), rest)
	case "at":
		return run(a.ctx, a.databases.at(), rest)
	case "at-local":
		return runInTransaction(a.ctx, a.databases.at(), rest)
	case "xa":
		return run(a.ctx, a.databases.xa(), rest)
	case "xa-local":
		return runInTransaction(a.ctx, a.databases.xa(), rest)
	case "reserve":
		return reserve(a.ctx, a.databases.plain(), rest)
	case "join":
		a.ctx = noGlobal()
		tm.SetXID(a.ctx, rest)
		return rest, nil
	case "leave":
		a.ctx = noGlobal()
		return "", nil
	case "status":
		return status(rest)
	default:
		return "", fmt.Errorf("no verb %s", verb)
	}
}

func status(xid string) (string, error) {
	ask := message.GlobalStatusRequest{
		AbstractGlobalEndRequest: message.AbstractGlobalEndRequest{Xid: xid},
	}
	answer, err := getty.GetGettyRemotingClient().SendSyncRequest(ask)
	if err != nil {
		return "", err
	}
	told, known := answer.(message.GlobalStatusResponse)
	if !known {
		return "", fmt.Errorf("answered with %#v", answer)
	}
	if told.GlobalStatus == message.GlobalStatusRollbacked {
		return "Rollbacked", nil
	}
	return word(told.GlobalStatus), nil
}
