// Command etcd-bench is etcd, built from its published modules at the versions in go.mod, and a load on it that is the same as
// that of `ordinate bench kv`: so many connections with so many calls in flight on each.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "server" {
		etcdmain.Main(append([]string{"etcd"}, os.Args[2:]...))
		return
	}
	if len(os.Args) < 2 || os.Args[1] != "load" {
		fmt.Fprintln(os.Stderr, "usage: etcd-bench (server | load) FLAGS")
		os.Exit(2)
	}
	if err := load(os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "etcd-bench:", err)
		os.Exit(1)
	}
}

type options struct {
	endpoints                             []string
	processes                             []string
	connections, outstanding, keys, value int
	reads                                 float64
	warmUp, measured                      time.Duration
}

func parse(arguments []string) options {
	var it options
	flags := flag.NewFlagSet("load", flag.ExitOnError)
	endpoints := flags.String("endpoints", "", "where the servers are, with commas between")
	processes := flags.String("processes", "", "their process numbers, whose processor time counts")
	seconds := flags.Float64("seconds", 5, "measured, after a second of warm-up")
	flags.IntVar(&it.connections, "connections", 30, "connections")
	flags.IntVar(&it.outstanding, "outstanding", 64, "calls in flight on each")
	flags.IntVar(&it.keys, "keys", 100000, "keys")
	flags.IntVar(&it.value, "value", 100, "bytes of a value")
	flags.Float64Var(&it.reads, "reads", 0, "share of linearizable reads")
	_ = flags.Parse(arguments)
	it.endpoints = strings.Split(*endpoints, ",")
	it.processes = strings.Split(*processes, ",")
	it.warmUp, it.measured = time.Second, time.Duration(*seconds*float64(time.Second))
	return it
}

// The processor time of the servers, in seconds: user and system.
func spent(processes []string) (float64, error) {
	sum := 0.0
	for _, process := range processes {
		text, err := os.ReadFile("/proc/" + process + "/stat")
		if err != nil {
			return 0, err
		}
		// What stands before is the name, in brackets.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		for _, field := range fields[11:13] {
			ticks, err := strconv.ParseFloat(field, 64)
			if err != nil {
				return 0, err
			}
			sum += ticks / 100
		}
	}
	return sum, nil
}

func key(number int) string { return fmt.Sprintf("key%09d", number) }

func load(arguments []string) error {
	it := parse(arguments)
	clients := make([]*clientv3.Client, it.connections)
	for at := range clients {
		// One server each, in turn.
		client, err := clientv3.New(clientv3.Config{
			Endpoints:   []string{it.endpoints[at%len(it.endpoints)]},
			DialTimeout: 10 * time.Second,
		})
		if err != nil {
			return err
		}
		defer client.Close()
		clients[at] = client
	}
	value := strings.Repeat("v", it.value)
	if err := fill(clients, it, value); err != nil {
		return err
	}
	var measuring, stopped atomic.Bool
	var failure atomic.Value
	var group sync.WaitGroup
	latencies := make([][]time.Duration, it.connections*it.outstanding)
	for caller := range latencies {
		group.Add(1)
		go func() {
			defer group.Done()
			client := clients[caller%it.connections]
			random := rand.New(rand.NewSource(int64(caller)))
			for !stopped.Load() {
				began, counts := time.Now(), measuring.Load()
				if err := call(client, random, it, value); err != nil {
					failure.Store(err)
					return
				}
				if counts && measuring.Load() {
					latencies[caller] = append(latencies[caller], time.Since(began))
				}
			}
		}()
	}
	time.Sleep(it.warmUp)
	before, err := spent(it.processes)
	if err != nil {
		return err
	}
	began := time.Now()
	measuring.Store(true)
	time.Sleep(it.measured)
	measuring.Store(false)
	seconds := time.Since(began).Seconds()
	after, err := spent(it.processes)
	if err != nil {
		return err
	}
	stopped.Store(true)
	group.Wait()
	if err, failed := failure.Load().(error); failed {
		return err
	}
	return report(latencies, seconds, after-before)
}

func call(client *clientv3.Client, random *rand.Rand, it options, value string) error {
	name := key(random.Intn(it.keys))
	if random.Float64() < it.reads {
		_, err := client.Get(context.Background(), name)
		return err
	}
	_, err := client.Put(context.Background(), name, value)
	return err
}

// Every key, once.
func fill(clients []*clientv3.Client, it options, value string) error {
	const callers = 256
	var next atomic.Int64
	var failure atomic.Value
	var group sync.WaitGroup
	for caller := range callers {
		group.Add(1)
		go func() {
			defer group.Done()
			for number := next.Add(1) - 1; number < int64(it.keys); number = next.Add(1) - 1 {
				client := clients[caller%len(clients)]
				if _, err := client.Put(context.Background(), key(int(number)), value); err != nil {
					failure.Store(err)
					return
				}
			}
		}()
	}
	group.Wait()
	if err, failed := failure.Load().(error); failed {
		return err
	}
	return nil
}

func report(latencies [][]time.Duration, seconds, spent float64) error {
	var all []time.Duration
	for _, some := range latencies {
		all = append(all, some...)
	}
	if len(all) == 0 {
		return fmt.Errorf("nothing was answered")
	}
	sort.Slice(all, func(a, b int) bool { return all[a] < all[b] })
	at := func(share float64) float64 {
		return float64(all[int(share*float64(len(all)-1))].Microseconds())
	}
	operations := float64(len(all))
	return json.NewEncoder(os.Stdout).Encode(map[string]float64{
		"ops_per_second":       operations / seconds,
		"p50_us":               at(0.5),
		"p99_us":               at(0.99),
		"p999_us":              at(0.999),
		"server_cpu_us_per_op": spent * 1e6 / operations,
	})
}
