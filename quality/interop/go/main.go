// A service with seata-go in it that does what it is told: a line of standard input is a command, a
// line of standard output an answer. It decides nothing and judges nothing.
//
// The words are those of the service in Java, as far as the client has something to say to them.
package main

import (
	"bufio"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/go-sql-driver/mysql"
	"github.com/seata/seata-go/pkg/client"
)

// A command, which is answered once.
type command struct {
	id, verb, rest string
	answers        *answers
}

func (c command) answer(text string) { c.answers.say(c.id, "ok", text) }

func (c command) fail(err error) { c.answers.say(c.id, "error", err.Error()) }

// What is answered, a whole line at a time.
type answers struct {
	lock sync.Mutex
	out  *os.File
}

func (a *answers) say(words ...string) {
	a.lock.Lock()
	defer a.lock.Unlock()
	line := strings.Join(words, " ")
	fmt.Fprintln(a.out, strings.ReplaceAll(line, "\n", " "))
}

// Arguments: the data source name of the database.
func main() {
	said := &answers{out: os.Stdout}
	// Whatever a library prints must not pass for an answer.
	os.Stdout = os.Stderr
	name := os.Args[1]
	if err := makeDatabase(name); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	client.Init()
	said.say("ready")
	serve(said, &databases{name: name})
}

// Java's driver does so when it is asked to.
func makeDatabase(name string) error {
	config, err := mysql.ParseDSN(name)
	if err != nil {
		return err
	}
	wanted := config.DBName
	config.DBName = ""
	server, err := sql.Open("mysql", config.FormatDSN())
	if err != nil {
		return err
	}
	defer server.Close()
	_, err = server.Exec("create database if not exists " + wanted)
	return err
}

func serve(said *answers, databases *databases) {
	actors := map[string]chan<- command{}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.SplitN(lines.Text(), " ", 4)
		told := command{id: words[0], verb: words[2], answers: said}
		if len(words) > 3 {
			told.rest = words[3]
		}
		commands, known := actors[words[1]]
		if !known {
			commands = startActor(databases)
			actors[words[1]] = commands
		}
		commands <- told
	}
}
