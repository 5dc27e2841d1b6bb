package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
)

var refusals = []string{
	"is not supported by this emulator",
	"can not be directly served by the gateway", // as an account says it: this client merges nothing
}

// of tries an operation, which fails by a panic, and prints how it ended, and why.
func of(operation string, attempt func()) {
	result, reason := "works", ""
	defer func() {
		if thrown := recover(); thrown != nil {
			result, reason = "failed", fmt.Sprint(thrown)
			for _, known := range refusals {
				if strings.Contains(reason, known) {
					result = "refused"
				}
			}
		}
		line := map[string]string{"client": "go", "operation": operation, "result": result}
		line["reason"] = reason[:min(len(reason), 1500)]
		if err := json.NewEncoder(os.Stdout).Encode(line); err != nil {
			panic(err)
		}
	}()
	attempt()
}

func must[T any](made T, err error) T {
	if err != nil {
		panic(err)
	}
	return made
}

func second[T any](_ T, err error) error {
	return err
}

func expect(wanted, found any) {
	if !reflect.DeepEqual(wanted, found) {
		panic(fmt.Sprintf("expected %v, found %v", wanted, found))
	}
}

// refused wants an answer of this status.
func refused(wanted int, err error) {
	var answer *azcore.ResponseError
	if !errors.As(err, &answer) {
		panic(fmt.Sprintf("expected the status %d, found %v", wanted, err))
	}
	expect(wanted, answer.StatusCode)
}

func text(value any) []byte {
	return must(json.Marshal(value))
}

func parsed(bytes []byte) map[string]any {
	var value map[string]any
	if err := json.Unmarshal(bytes, &value); err != nil {
		panic(err)
	}
	return value
}

func item(id, pk string, n int) []byte {
	return text(map[string]any{"id": id, "pk": pk, "n": n})
}
