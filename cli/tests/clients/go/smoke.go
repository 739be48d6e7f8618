// The Go client against the servers given. Prints a line a check; fails with the first.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

const timeout = 10 * time.Second

var servers []string
var checks int

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func expect(holds bool, what string, values ...any) {
	if !holds {
		panic(fmt.Sprintf(what, values...))
	}
}

// Connections of one client, so that a check can break them.
type connections struct {
	lock sync.Mutex
	open []net.Conn
}

func (it *connections) dial(network, address string, within time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, within)
	if err == nil {
		it.lock.Lock()
		defer it.lock.Unlock()
		it.open = append(it.open, conn)
	}
	return conn, err
}

func (it *connections) drop() {
	it.lock.Lock()
	defer it.lock.Unlock()
	for _, conn := range it.open {
		conn.Close()
	}
	it.open = nil
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func connect() (*zk.Conn, *connections) {
	used := &connections{}
	conn, events, err := zk.Connect(servers, timeout, zk.WithDialer(used.dial), zk.WithLogger(silent{}))
	must(err)
	for event := range events {
		if event.State == zk.StateHasSession {
			go func() {
				for range events {
				}
			}()
			return conn, used
		}
	}
	panic("no session")
}

func next(events <-chan zk.Event) zk.Event {
	select {
	case event := <-events:
		return event
	case <-time.After(2 * timeout):
		panic("no event")
	}
}

func basics(conn *zk.Conn, _ *connections) {
	open := zk.WorldACL(zk.PermAll)
	path, err := conn.Create("/go", []byte("one"), 0, open)
	must(err)
	expect(path == "/go", "created %s", path)
	_, err = conn.Create("/go", nil, 0, open)
	expect(errors.Is(err, zk.ErrNodeExists), "created twice: %v", err)
	_, err = conn.Create("/nowhere/x", nil, 0, open)
	expect(errors.Is(err, zk.ErrNoNode), "created below nothing: %v", err)
	data, stat, err := conn.Get("/go")
	must(err)
	expect(bytes.Equal(data, []byte("one")) && stat.Version == 0, "read %s, %v", data, stat)
	stat, err = conn.Set("/go", []byte("two"), 0)
	must(err)
	expect(stat.Version == 1, "version %d", stat.Version)
	_, err = conn.Set("/go", nil, 0)
	expect(errors.Is(err, zk.ErrBadVersion), "set at an old version: %v", err)
	_, err = conn.Sync("/go")
	must(err)
}

func sequences(conn *zk.Conn, _ *connections) {
	for wanted := 0; wanted < 3; wanted++ {
		path, err := conn.Create("/go/s-", nil, zk.FlagSequence, zk.WorldACL(zk.PermAll))
		must(err)
		expect(path == fmt.Sprintf("/go/s-%010d", wanted), "created %s", path)
	}
	names, stat, err := conn.Children("/go")
	must(err)
	expect(len(names) == 3 && stat.NumChildren == 3, "children %v", names)
	expect(errors.Is(conn.Delete("/go", -1), zk.ErrNotEmpty), "deleted with children")
	_, err = conn.CreateContainer("/go/box", nil, zk.FlagContainer, zk.WorldACL(zk.PermAll))
	must(err)
	_, err = conn.CreateTTL("/go/mortal", nil, zk.FlagTTL, zk.WorldACL(zk.PermAll), time.Hour)
	must(err)
}

func multi(conn *zk.Conn, _ *connections) {
	open := zk.WorldACL(zk.PermAll)
	create := &zk.CreateRequest{Path: "/go/m", Data: []byte("m"), Acl: open}
	answers, err := conn.Multi(create, &zk.SetDataRequest{Path: "/go", Data: []byte("three"), Version: 1})
	must(err)
	expect(len(answers) == 2 && answers[0].String == "/go/m" && answers[1].Stat.Version == 2, "%v", answers)
	_, err = conn.Multi(&zk.DeleteRequest{Path: "/go/m", Version: -1}, &zk.CheckVersionRequest{Path: "/go", Version: 7})
	expect(err != nil, "a check of another version passed")
	there, _, err := conn.Exists("/go/m")
	must(err)
	expect(there, "half of a multi was executed")
}

func watches(conn *zk.Conn, _ *connections) {
	_, _, data, err := conn.GetW("/go")
	must(err)
	_, _, children, err := conn.ChildrenW("/go")
	must(err)
	_, _, missing, err := conn.ExistsW("/go/later")
	must(err)
	_, err = conn.Set("/go", []byte("four"), -1)
	must(err)
	_, err = conn.Create("/go/later", nil, 0, zk.WorldACL(zk.PermAll))
	must(err)
	event := next(data)
	expect(event.Type == zk.EventNodeDataChanged && event.Path == "/go", "%v", event)
	event = next(missing)
	expect(event.Type == zk.EventNodeCreated && event.Path == "/go/later", "%v", event)
	event = next(children)
	expect(event.Type == zk.EventNodeChildrenChanged, "%v", event)
}

// The session and its watches outlive a connection, and what happened meanwhile is announced.
func reconnect(conn *zk.Conn, used *connections) {
	other, _ := connect()
	defer other.Close()
	_, err := conn.Create("/go/mine", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	must(err)
	_, _, changed, err := conn.GetW("/go")
	must(err)
	session := conn.SessionID()
	used.drop()
	_, err = other.Set("/go", []byte("meanwhile"), -1)
	must(err)
	event := next(changed)
	expect(event.Type == zk.EventNodeDataChanged, "%v", event)
	var there bool
	for began := time.Now(); time.Since(began) < timeout; time.Sleep(20 * time.Millisecond) {
		if there, _, err = conn.Exists("/go/mine"); err == nil {
			break
		}
	}
	must(err)
	expect(there && conn.SessionID() == session, "the session was lost with its connection")
}

func ephemerals(conn *zk.Conn, _ *connections) {
	other, _ := connect()
	_, err := other.Create("/go/theirs", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	must(err)
	there, _, gone, err := conn.ExistsW("/go/theirs")
	must(err)
	expect(there, "an ephemeral node is not there")
	other.Close()
	event := next(gone)
	expect(event.Type == zk.EventNodeDeleted, "%v", event)
}

func locks(conn *zk.Conn, _ *connections) {
	other, _ := connect()
	defer other.Close()
	open := zk.WorldACL(zk.PermAll)
	mine, theirs := zk.NewLock(conn, "/go/lock", open), zk.NewLock(other, "/go/lock", open)
	must(mine.Lock())
	held := make(chan error, 1)
	go func() { held <- theirs.Lock() }()
	select {
	case err := <-held:
		panic(fmt.Sprintf("two hold one lock: %v", err))
	case <-time.After(300 * time.Millisecond):
	}
	must(mine.Unlock())
	must(<-held)
	must(theirs.Unlock())
}

func authentication(conn *zk.Conn, _ *connections) {
	other, _ := connect()
	defer other.Close()
	must(conn.AddAuth("digest", []byte("ann:secret")))
	_, err := conn.Create("/go/own", []byte("x"), 0, zk.DigestACL(zk.PermAll, "ann", "secret"))
	must(err)
	_, _, err = other.Get("/go/own")
	expect(errors.Is(err, zk.ErrNoAuth), "a stranger reads: %v", err)
	_, _, err = conn.Get("/go/own")
	must(err)
	acl, _, err := conn.GetACL("/go/own")
	must(err)
	expect(len(acl) == 1 && acl[0].Scheme == "digest", "%v", acl)
}

func words(_ *zk.Conn, _ *connections) {
	for _, ok := range zk.FLWRuok(servers, timeout) {
		expect(ok, "a server is not ok")
	}
	stats, ok := zk.FLWSrvr(servers, timeout)
	expect(ok && len(stats) == len(servers), "srvr cannot be read: %v", stats)
	expect(stats[0].NodeCount >= 5, "%d nodes", stats[0].NodeCount)
}

func main() {
	servers = strings.Split(os.Args[1], ",")
	conn, used := connect()
	for _, check := range []struct {
		what string
		run  func(*zk.Conn, *connections)
	}{
		{"create, get, set, versions, sync", basics},
		{"sequential nodes, containers, nodes with a time to live", sequences},
		{"multi, and its failure", multi},
		{"watches: data, child, exist", watches},
		{"a session survives its connection, and its watches do", reconnect},
		{"ephemeral nodes end with their session", ephemerals},
		{"lock", locks},
		{"digest authentication", authentication},
		{"four-letter words", words},
	} {
		check.run(conn, used)
		checks++
		fmt.Println("ok", check.what)
	}
	conn.Close()
	fmt.Printf("%d checks passed\n", checks)
}
