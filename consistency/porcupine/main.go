// Decides register histories with Porcupine, for comparison: one line "FILE VERDICT SECONDS" per file.
// Seconds are those of the check alone, without reading the file.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

type input struct {
	Op    string `json:"op"`
	Key   int64  `json:"key"`
	Value *int64 `json:"value"`
}

type line struct {
	ClientId int
	Input    input
	Call     int64
	Output   *int64
	Return   int64
}

// nothing stands for a key that nobody wrote.
const nothing = int64(-1)

func held(value *int64) int64 {
	if value == nil {
		return nothing
	}
	return *value
}

var model = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		byKey := map[int64][]porcupine.Operation{}
		for _, operation := range history {
			key := operation.Input.(input).Key
			byKey[key] = append(byKey[key], operation)
		}
		parts := make([][]porcupine.Operation, 0, len(byKey))
		for _, part := range byKey {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() interface{} { return nothing },
	Step: func(state, in, out interface{}) (bool, interface{}) {
		request := in.(input)
		if request.Op == "put" {
			return true, held(request.Value)
		}
		return out.(int64) == state.(int64), state
	},
}

func check(path string, limit time.Duration) (string, float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", 0, err
	}
	var lines []line
	if err := json.Unmarshal(text, &lines); err != nil {
		return "", 0, err
	}
	operations := make([]porcupine.Operation, 0, len(lines))
	for _, line := range lines {
		operations = append(operations, porcupine.Operation{
			ClientId: line.ClientId, Input: line.Input, Call: line.Call, Output: held(line.Output), Return: line.Return,
		})
	}
	began := time.Now()
	result := porcupine.CheckOperationsTimeout(model, operations, limit)
	spent := time.Since(began).Seconds()
	verdict := map[porcupine.CheckResult]string{
		porcupine.Ok: "holds", porcupine.Illegal: "violated", porcupine.Unknown: "undecided",
	}[result]
	return verdict, spent, nil
}

func main() {
	limit := 60 * time.Second
	for _, path := range os.Args[1:] {
		verdict, spent, err := check(path, limit)
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
			os.Exit(2)
		}
		fmt.Printf("%s %s %.6f\n", path, verdict, spent)
	}
}
